use super::{Event, EventSink, Interest};

/// Returns a sink that calls `function`; see [`SinkFn::interested_in`] for events beyond
/// [`Interest::SDAM`].
pub fn sink_fn<F: Fn(&Event) + Send + Sync + 'static>(function: F) -> SinkFn<F> {
    SinkFn { function, interest: Interest::SDAM }
}

/// A sink that calls a closure, created by [`sink_fn`].
pub struct SinkFn<F> {
    function: F,
    interest: Interest,
}

impl<F> SinkFn<F> {
    /// Sets which events the sink receives.
    #[must_use]
    pub fn interested_in(mut self, interest: Interest) -> Self {
        self.interest = interest;
        self
    }
}

impl<F: Fn(&Event) + Send + Sync + 'static> EventSink for SinkFn<F> {
    fn emit(&self, event: &Event) {
        (self.function)(event);
    }

    fn interest(&self) -> Interest {
        self.interest
    }
}

sdam_core::opaque!(SinkFn<F>, |this| interest: this.interest);
