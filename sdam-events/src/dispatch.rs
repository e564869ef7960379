//! Delivery: from the queue to the sink, with no lock held.

use std::{
    any::Any,
    fmt,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use sdam_core::event::Event;

use crate::{
    queue::{Batch, EventQueue, Next},
    sink::EventSink,
};

#[cfg(test)]
mod tests;

/// How many events are delivered before other tasks of the executor get their turn.
const BUDGET: usize = 128;

/// The future that delivers the events of a queue to a sink; there is one for each topology.
///
/// It is ready when the queue is closed and empty, or when the sink has panicked. It then lets go of
/// the sink, so what the sink owns (the sending half of a channel, a file) is dropped.
///
/// # Cancel safety
///
/// Dropping it loses nothing: what was not delivered is still in the queue, for another dispatcher
/// or for [`EventQueue::drain_now`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Dispatcher {
    queue: Arc<EventQueue>,
    sink: Option<Arc<dyn EventSink>>,
    delivered: u64,
}

impl Dispatcher {
    /// Delivers what is pushed to `queue`, which was made with the interest of `sink`.
    pub fn new(queue: Arc<EventQueue>, sink: Arc<dyn EventSink>) -> Self {
        Self {
            queue,
            sink: Some(sink),
            delivered: 0,
        }
    }
}

impl Future for Dispatcher {
    type Output = Dispatched;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Dispatched> {
        let this = &mut *self;
        if let Some(sink) = &this.sink {
            // Registering first means that no push between the look and the wait goes unnoticed.
            this.queue.waker.register(cx.waker());
            let delivery = this.queue.deliver(&**sink, BUDGET);
            this.delivered += delivery.delivered;
            match delivery.stopped {
                // Who gives the right to deliver back wakes the dispatcher if there is more to do.
                Stopped::Budget | Stopped::Empty | Stopped::Busy => return Poll::Pending,
                Stopped::Closed | Stopped::Failed => this.sink = None,
            }
        }
        Poll::Ready(Dispatched {
            delivered: this.delivered,
            failure: this.queue.sink_failed().cloned(),
        })
    }
}

/// How delivery has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dispatched {
    /// How many events the sink has taken.
    pub delivered: u64,
    /// The panic that ended delivery early.
    pub failure: Option<SinkPanicked>,
}

/// A sink has panicked and is not called any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkPanicked {
    /// The number of the event it was called with.
    pub seq: u64,
    /// The message of the panic.
    pub message: Box<str>,
}

impl fmt::Display for SinkPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the event sink panicked at event {} and is not called any more: {}",
            self.seq, self.message
        )
    }
}

impl std::error::Error for SinkPanicked {}

impl SinkPanicked {
    /// Tells the log, if there is one.
    pub(crate) fn report(&self) {
        #[cfg(feature = "tracing")]
        tracing::error!(target: "sdam::events", "{self}");
        #[cfg(not(feature = "tracing"))]
        let _ = self;
    }
}

/// What one round of delivery has done.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) delivered: u64,
    pub(crate) stopped: Stopped,
}

/// Why a round of delivery has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    Budget,
    Empty,
    /// Somebody else delivers; whoever that is wakes the dispatcher when done.
    Busy,
    Closed,
    Failed,
}

impl EventQueue {
    /// Delivers up to `budget` events.
    pub(crate) fn deliver(&self, sink: &dyn EventSink, budget: usize) -> Delivery {
        let Some(mut batch) = self.take_batch() else {
            return Delivery {
                delivered: 0,
                stopped: Stopped::Busy,
            };
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
            let outcome = call(sink, &event);
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

/// Calls the sink, and survives it.
pub(crate) fn call(sink: &dyn EventSink, event: &Event) -> Result<(), SinkPanicked> {
    // A sink that has panicked is not called again, so nobody sees what it may have left half-done.
    catch_unwind(AssertUnwindSafe(|| sink.emit(event))).map_err(|payload| SinkPanicked {
        seq: event.seq,
        message: panic_message(payload),
    })
}

fn panic_message(payload: Box<dyn Any + Send>) -> Box<str> {
    match payload.downcast::<&'static str>() {
        Ok(text) => (*text).into(),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => text.into_boxed_str(),
            Err(payload) => {
                // Dropping a value of an unknown type could panic once more.
                mem::forget(payload);
                "a panic without a message".into()
            }
        },
    }
}
