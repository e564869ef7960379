//! The dispatcher: delivers events from the queue to the sink, with no lock held.

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

/// The number of events that one poll delivers before it yields to the executor's other tasks.
const BUDGET: usize = 128;

/// The future that delivers the events of a queue to a sink; there is one for each topology.
///
/// It is ready when the queue is closed and empty, or when the sink has panicked. It then releases
/// the sink, so that what the sink owns (the sending half of a channel, a file) is dropped.
///
/// # Cancel safety
///
/// Dropping the future loses no event: undelivered events stay in the queue, for another dispatcher
/// or for [`EventQueue::drain_now`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Dispatcher {
    queue: Arc<EventQueue>,
    sink: Option<Arc<dyn EventSink>>,
    delivered: u64,
}

impl Dispatcher {
    /// Creates a dispatcher from `queue`, which was created with the interest of `sink`, to `sink`.
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
            // Registering the waker before looking into the queue means that no push is missed.
            this.queue.waker.register(cx.waker());
            let delivery = this.queue.deliver(&**sink, BUDGET);
            this.delivered += delivery.delivered;
            match delivery.stopped {
                // Returning the batch wakes the dispatcher if events are left.
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

/// The result of a [`Dispatcher`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dispatched {
    /// The number of delivered events.
    pub delivered: u64,
    /// The panic that ended delivery early.
    pub failure: Option<SinkPanicked>,
}

/// The panic of a sink, which is not called again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkPanicked {
    /// The sequence number of the event during which the sink panicked.
    pub seq: u64,
    /// The panic message.
    pub message: Box<str>,
}

impl fmt::Display for SinkPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the event sink panicked at event {} and is disabled: {}",
            self.seq, self.message
        )
    }
}

impl std::error::Error for SinkPanicked {}

impl SinkPanicked {
    /// Logs the panic through `tracing` if that feature is on.
    pub(crate) fn report(&self) {
        #[cfg(feature = "tracing")]
        tracing::error!(target: "sdam::events", "{self}");
        #[cfg(not(feature = "tracing"))]
        let _ = self;
    }
}

/// The result of one round of delivery.
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
    /// Another consumer is delivering; it wakes the dispatcher when done.
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

/// Calls the sink and catches its panic.
pub(crate) fn call(sink: &dyn EventSink, event: &Event) -> Result<(), SinkPanicked> {
    // Unwind safe: a sink that has panicked is not called again, so its broken state is never used.
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
                // Dropping a payload of unknown type could panic again.
                mem::forget(payload);
                "a panic without a message".into()
            }
        },
    }
}
