//! Methods that set one field of a value in a chain of calls.

/// Defines setters. Each one states its argument, the field that it sets, and the new value of that
/// field. This macro is only for sdam's own crates.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($argument:ident: $type:ty) => $field:ident = $value:expr;
    )*) => {$(
        $(#[$meta])*
        #[must_use]
        $vis fn $name(mut self, $argument: $type) -> Self {
            self.$field = $value;
            self
        }
    )*};
}
