//! A sink that sends events into a channel, and the stream that receives them.
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
//! In synchronous code, `futures::executor::block_on_stream` turns the stream into an iterator.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::{Arc, Mutex},
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

use crate::{
    sink::{EventSink, Interest, lock},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

#[cfg(test)]
mod tests;

/// Returns a sink and the stream of all its events; no event is dropped.
///
/// Unread events accumulate without bound. Once the stream is dropped, events are discarded.
pub fn unbounded() -> (ChannelSink, EventStream) {
    bounded(usize::MAX)
}

/// Returns a sink and a stream of its events. While `capacity` or more events are unread, new
/// heartbeats and the events of operations are dropped.
///
/// - A heartbeat is dropped as a whole: its end is dropped if and only if its start was.
/// - The events of [operations](Interest::OPERATIONS) are dropped individually.
/// - All other events are kept, because a consumer that tracks the topology, servers and
///   connections from one change to the next must not miss any. These events are rare: a
///   description that equals the previous one is not published.
///
/// The stream therefore holds at most `capacity` events, one heartbeat end for each server, and the
/// changes since the last read. [`EventStream::dropped`] counts the dropped events.
pub fn bounded(capacity: usize) -> (ChannelSink, EventStream) {
    let (sender, receiver) = mpsc::unbounded();
    let counters = Arc::new(Counters::default());
    let sink = ChannelSink {
        sender,
        counters: Arc::clone(&counters),
        interest: Interest::SDAM,
        capacity,
        skipped: Mutex::default(),
    };
    (sink, EventStream { receiver, counters })
}

#[derive(Debug, Default)]
struct Counters {
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

/// The sending half of a channel.
///
/// The stream ends when the sink is dropped, which happens after the last event of its topology.
/// Several topologies can share the sink in an `Arc`; the stream then ends after the last event of
/// all of them.
#[derive(Debug)]
pub struct ChannelSink {
    sender: UnboundedSender<Event>,
    counters: Arc<Counters>,
    interest: Interest,
    capacity: usize,
    /// The servers whose current heartbeat was dropped. Only `emit` locks this set.
    skipped: Mutex<BTreeSet<(ObjectId, ServerId)>>,
}

impl ChannelSink {
    /// Sets which events the sink receives.
    #[must_use]
    pub fn interested_in(mut self, interest: Interest) -> Self {
        self.interest = interest;
        self
    }

    fn leaves_out(&self, event: &Event) -> bool {
        let is_full = || self.counters.waiting.load(Ordering::Relaxed) >= self.capacity;
        if self.capacity == usize::MAX {
            return false;
        }
        let key = |heartbeat: &Heartbeat| (event.topology, heartbeat.server);
        let mut skipped = lock(&self.skipped);
        match &event.kind {
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                is_full() && skipped.insert(key(heartbeat))
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
            | EventKind::ServerHeartbeatFailed { heartbeat, .. } => skipped.remove(&key(heartbeat)),
            kind => Interest::OPERATIONS.contains(kind.name()) && is_full(),
        }
    }
}

impl EventSink for ChannelSink {
    fn emit(&self, event: &Event) {
        if self.leaves_out(event) {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // The event is counted before it can be read, so that the count never falls below zero.
        self.counters.waiting.fetch_add(1, Ordering::Relaxed);
        // Sending fails only if the stream was dropped.
        if self.sender.unbounded_send(event.clone()).is_err() {
            self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn interest(&self) -> Interest {
        self.interest
    }
}

/// The receiving half of a channel of events.
///
/// The stream ends when the sink is dropped, after the last event of a closed topology.
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
    /// Returns the next event if one is available.
    pub fn try_next(&mut self) -> Option<Event> {
        self.next().now_or_never().flatten()
    }

    /// Returns the number of unread events.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.counters.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of events that a [`bounded`] channel has dropped; a heartbeat counts as
    /// two events.
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
