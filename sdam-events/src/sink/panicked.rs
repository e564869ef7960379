use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{Event, EventSink};

/// The panic of a sink, which is not called again afterwards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("the event sink panicked at event {seq} and is disabled: {message}")]
pub struct SinkPanicked {
    /// The sequence number of the event during which the sink panicked.
    pub seq: u64,
    /// The panic message.
    pub message: Box<str>,
}

impl SinkPanicked {
    /// Logs the panic through `tracing` if that feature is enabled.
    pub(crate) fn report(&self) {
        #[cfg(feature = "tracing")]
        tracing::error!(target: "sdam::events", "{self}");
        #[cfg(not(feature = "tracing"))]
        let _ = self;
    }
}

/// Calls the sink and catches its panic.
pub(crate) fn call(sink: &dyn EventSink, event: &Event) -> Result<(), SinkPanicked> {
    // This is unwind safe, because a sink that has panicked is not called again.
    catch_unwind(AssertUnwindSafe(|| sink.emit(event)))
        .map_err(|payload| SinkPanicked { seq: event.seq, message: panic_message(payload) })
}

fn panic_message(payload: Box<dyn Any + Send>) -> Box<str> {
    match payload.downcast::<&'static str>() {
        Ok(text) => (*text).into(),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => text.into_boxed_str(),
            Err(payload) => {
                // Dropping a payload of unknown type could panic again.
                mem::forget(payload);
                "a panic without a message".into()
            }
        },
    }
}
