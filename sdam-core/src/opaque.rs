//! `Debug` of types that do not show their fields.

/// Implements `Debug` for a type with secrets, functions or much data: the output shows the given
/// values in place of the fields. Only for use by sdam's crates.
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
