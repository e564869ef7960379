//! Delivers the events of a queue to a sink.

use super::EventQueue;
use crate::sink::{self, EventSink};

/// The reason why a round of delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    Budget,
    Empty,
    /// Another consumer is delivering; it wakes the dispatcher when it is done.
    Busy,
    Closed,
    Failed,
}

impl EventQueue {
    /// Delivers up to `budget` events, and adds their number to `delivered`.
    pub(crate) fn deliver(
        &self,
        sink: &dyn EventSink,
        budget: usize,
        delivered: &mut u64,
    ) -> Stopped {
        let Some(mut batch) = self.take_batch() else {
            return Stopped::Busy;
        };
        self.warn_of_depth();
        for _ in 0..budget {
            let event = match batch.next() {
                Ok(event) => event,
                Err(stopped) => return stopped,
            };
            let outcome = sink::call(sink, event);
            batch.delivered();
            if let Err(failure) = outcome {
                failure.report();
                self.fail(failure);
                batch.discard();
                return Stopped::Failed;
            }
            *delivered += 1;
        }
        Stopped::Budget
    }
}
