//! The message of a caught panic.

use std::any::Any;

/// Returns the message of the panic.
pub fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("without a text")
}
