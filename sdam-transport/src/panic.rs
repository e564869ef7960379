//! The text of a panic that was caught.

use std::any::Any;

/// Returns the text that the panic was raised with.
pub(crate) fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("without a text")
}
