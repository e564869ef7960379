//! Events as a stream.
//!
//! ```
//! use futures::StreamExt;
//! use sdam_events::channel;
//!
//! let (sink, mut events) = channel::unbounded();
//! # let mut sink = Some(sink);
//! # futures::executor::block_on(async {
//! // Give `sink` to the topology, then:
//! # drop(sink.take());
//! while let Some(event) = events.next().await {
//!     println!("{:?}: {:?}", event.at, event.kind);
//! }
//! # });
//! ```
//!
//! In a program without async, `futures::executor::block_on_stream` makes an iterator of it.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{self, UnboundedReceiver, UnboundedSender},
    stream::{FusedStream, Stream},
};
use sdam_core::{
    event::{Event, EventKind, Heartbeat},
    ids::{ObjectId, ServerId},
};

use crate::sink::{EventSink, Interest};

#[cfg(test)]
mod tests;

/// A sink and the stream of all its events; nothing is ever left out.
///
/// If nobody reads the stream, it grows. If it is dropped, events go nowhere.
pub fn unbounded() -> (ChannelSink, EventStream) {
    let (sender, receiver) = mpsc::unbounded();
    let counters = Arc::new(Counters::default());
    let sink = ChannelSink {
        sender,
        counters: Arc::clone(&counters),
        interest: Interest::SDAM,
    };
    (sink, EventStream { receiver, counters })
}

/// A sink and the stream of its events, which leaves out heartbeats while `capacity` events wait to
/// be read.
///
/// - A heartbeat is left out as a whole: if its start was, its end is; if its start was not, its end
///   is not either.
/// - The steps of server selections are left out one by one.
/// - Everything else is never left out: who follows topology and servers by their changes must not
///   miss one. These events are rare, because equal descriptions are not published.
///
/// So the stream holds at most `capacity` events, one end for each server, and the changes since it
/// was last read. [`EventStream::dropped`] counts what was left out.
pub fn bounded(capacity: usize) -> (BoundedSink, EventStream) {
    let (inner, stream) = unbounded();
    let sink = BoundedSink {
        inner,
        capacity,
        skipped: Mutex::default(),
    };
    (sink, stream)
}

#[derive(Debug, Default)]
struct Counters {
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

/// The sending half of [`unbounded`].
///
/// The stream ends when this is dropped, which happens after the last event of the topology it was
/// given to. An `Arc` of it can serve several topologies; the stream then ends after the last.
#[derive(Debug)]
pub struct ChannelSink {
    sender: UnboundedSender<Event>,
    counters: Arc<Counters>,
    interest: Interest,
}

impl ChannelSink {
    /// The same sink, told of these events.
    #[must_use]
    pub fn interested_in(mut self, interest: Interest) -> Self {
        self.interest = interest;
        self
    }
}

impl EventSink for ChannelSink {
    fn emit(&self, event: &Event) {
        // Counted before it can be read, so that the count never falls below zero.
        self.counters.waiting.fetch_add(1, Ordering::Relaxed);
        // The only error is that the stream is gone: nobody wants the event any more.
        if self.sender.unbounded_send(event.clone()).is_err() {
            self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn interest(&self) -> Interest {
        self.interest
    }
}

/// The sending half of [`bounded`].
#[derive(Debug)]
pub struct BoundedSink {
    inner: ChannelSink,
    capacity: usize,
    /// Servers whose heartbeat under way was left out. Only `emit` takes the lock.
    skipped: Mutex<BTreeSet<(ObjectId, ServerId)>>,
}

impl BoundedSink {
    /// The same sink, told of these events.
    #[must_use]
    pub fn interested_in(mut self, interest: Interest) -> Self {
        self.inner.interest = interest;
        self
    }

    fn leaves_out(&self, event: &Event) -> bool {
        let is_full = || self.inner.counters.waiting.load(Ordering::Relaxed) >= self.capacity;
        let key = |heartbeat: &Heartbeat| (event.topology, heartbeat.server);
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        match &event.kind {
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                is_full() && skipped.insert(key(heartbeat))
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
            | EventKind::ServerHeartbeatFailed { heartbeat, .. } => skipped.remove(&key(heartbeat)),
            EventKind::ServerSelectionStarted { .. }
            | EventKind::ServerSelectionWaiting { .. }
            | EventKind::ServerSelectionSucceeded { .. }
            | EventKind::ServerSelectionFailed { .. } => is_full(),
            _ => false,
        }
    }
}

impl EventSink for BoundedSink {
    fn emit(&self, event: &Event) {
        if self.leaves_out(event) {
            self.inner.counters.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            self.inner.emit(event);
        }
    }

    fn interest(&self) -> Interest {
        self.inner.interest
    }
}

/// The receiving half of a channel of events.
///
/// It ends when the sink is dropped, that is, after the last event of a closed topology.
///
/// # Cancel safety
///
/// Dropping the future of `next()` loses no event.
#[derive(Debug)]
pub struct EventStream {
    receiver: UnboundedReceiver<Event>,
    counters: Arc<Counters>,
}

impl EventStream {
    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.next().now_or_never().flatten()
    }

    /// How many events wait to be read.
    pub fn waiting(&self) -> usize {
        self.counters.waiting.load(Ordering::Relaxed)
    }

    /// How many events were left out by a [`bounded`] channel; a heartbeat counts as two.
    pub fn dropped(&self) -> u64 {
        self.counters.dropped.load(Ordering::Relaxed)
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let next = self.receiver.poll_next_unpin(cx);
        if let Poll::Ready(Some(_)) = next {
            self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.receiver.size_hint()
    }
}

impl FusedStream for EventStream {
    fn is_terminated(&self) -> bool {
        self.receiver.is_terminated()
    }
}
