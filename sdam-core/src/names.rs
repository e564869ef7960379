//! Enumerations whose values have a string form.

/// Declares an enumeration whose values have string names. Each value is written once, next to its
/// name, and `Display` writes the name. This macro is only for sdam's own crates.
#[doc(hidden)]
#[macro_export]
macro_rules! names {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$own:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$own])* $value,)*
        }

        impl $name {
            /// Every value, in declaration order.
            $vis const ALL: &'static [Self] = &[$(Self::$value),*];

            /// Returns the name, for logs, records and counters.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(crate) use names;
