//! Implements `Debug` for types that do not show their fields.

/// Implements `Debug` for a type whose fields hold secrets, functions or large amounts of data: the
/// output shows the given values instead of the fields. This macro is only for sdam's own crates.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque {
    ($name:ident $(<$generic:ident>)? $(, |$this:ident| $($field:ident: $value:expr),+ $(,)?)?) => {
        impl $(<$generic>)? ::core::fmt::Debug for $name $(<$generic>)? {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
