//! Delivers events from the queue to the sink, with no lock held.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    queue::{EventQueue, Stopped},
    sink::EventSink,
};

#[cfg(test)]
mod tests;

/// The number of events that one poll delivers before yielding to other tasks of the executor.
const BUDGET: usize = 128;

/// The future that delivers the events of a queue to a sink. Each topology has one.
///
/// It completes when the queue is closed and empty, or when the sink has
/// [panicked](EventQueue::sink_failed). It then releases the sink, so that the sink's resources,
/// such as the sending half of a channel or a file, are dropped.
///
/// # Cancel safety
///
/// Dropping the future loses no event: undelivered events stay in the queue for another dispatcher
/// or for [`EventQueue::drain_now`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Dispatcher {
    queue: Arc<EventQueue>,
    sink: Option<Arc<dyn EventSink>>,
}

impl Dispatcher {
    /// Creates a dispatcher that delivers the events of `queue` to `sink`. The queue must have been
    /// created with the interest of `sink`.
    pub fn new(queue: Arc<EventQueue>, sink: Arc<dyn EventSink>) -> Self {
        Self { queue, sink: Some(sink) }
    }
}

impl Future for Dispatcher {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some(sink) = &this.sink {
            // The waker is registered before the queue is read, so that no push is missed.
            this.queue.waker.register(cx.waker());
            match this.queue.deliver(&**sink, BUDGET, &mut 0) {
                // If events remain, returning them to the queue wakes the dispatcher.
                Stopped::Budget | Stopped::Empty | Stopped::Busy => return Poll::Pending,
                Stopped::Closed | Stopped::Failed => this.sink = None,
            }
        }
        Poll::Ready(())
    }
}
