//! Enumerations whose values have names.

/// Declares an enumeration of names: each value once, with its spelling.
macro_rules! names {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$own:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$own])* $value,)*
        }

        impl $name {
            /// Every value, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// Returns the name, for messages, records and counters.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }
    };
}

pub(crate) use names;
