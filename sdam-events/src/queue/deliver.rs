//! Delivers the events of a queue to a sink.

use super::{Batch, EventQueue, Next};
use crate::sink::{self, EventSink};

/// The result of one round of delivery.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) delivered: u64,
    pub(crate) stopped: Stopped,
}

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
    /// Delivers up to `budget` events.
    pub(crate) fn deliver(&self, sink: &dyn EventSink, budget: usize) -> Delivery {
        let Some(mut batch) = self.take_batch() else {
            return Delivery { delivered: 0, stopped: Stopped::Busy };
        };
        self.warn_of_depth();
        let mut delivered = 0;
        let stopped = self.deliver_batch(&mut batch, sink, budget, &mut delivered);
        Delivery { delivered, stopped }
    }

    fn deliver_batch(
        &self,
        batch: &mut Batch<'_>,
        sink: &dyn EventSink,
        budget: usize,
        delivered: &mut u64,
    ) -> Stopped {
        for _ in 0..budget {
            let event = match batch.next() {
                Next::Event(event) => event,
                Next::Empty => return Stopped::Empty,
                Next::Closed => return Stopped::Closed,
            };
            let outcome = sink::call(sink, &event);
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
