//! The queue between those to whom things happen and the one who is told.

use std::{
    collections::VecDeque,
    mem,
    sync::{OnceLock, PoisonError},
};

use sdam_core::{
    event::{Event, EventKind, EventName},
    ids::ObjectId,
    time::Instant,
};

use crate::{
    dispatch::{SinkPanicked, Stopped},
    sink::{EventSink, Interest},
    sync::{
        AtomicWaker, Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

mod batch;
mod shed;
#[cfg(test)]
mod tests;

pub(crate) use batch::{Batch, Next};
use shed::{Shedding, weight};

/// The ordered queue of one topology's events.
///
/// Nothing is left out unless the sink falls far behind. A sink that does not return, or is slower
/// than a server that says something new without a pause, cannot make memory grow without bound:
///
/// - From [`SHED_BYTES`](Self::SHED_BYTES) on, heartbeats are left out as a whole, and so are the
///   selections that begin: of whatever has a beginning among what is delivered, the end is, too.
/// - From [`FULL_BYTES`](Self::FULL_BYTES) on, everything is left out that ends nothing.
///
/// [`dropped`](Self::dropped) counts, and an `EventsDropped` comes where a gap begins and ends. Who
/// keeps an account of servers by events takes it from the next description after that.
///
/// Producers push from any thread, usually while they hold the lock that made the change, so the
/// order in the queue is the order of the changes. [`Event::seq`] is given out under the queue's
/// own lock, which is held for the time of an append and never while a sink runs.
///
/// `TopologyClosed` closes the queue. If heartbeats are under way at that moment it is held back
/// until the last of them has ended, so it is the last event and every started heartbeat has an end
/// before it.
#[derive(Debug)]
pub struct EventQueue {
    topology: ObjectId,
    /// The bits of an [`Interest`]; cleared when the sink has panicked.
    interest: AtomicU32,
    state: Mutex<State>,
    /// Events pushed and not yet delivered.
    depth: AtomicUsize,
    high_water: std::sync::atomic::AtomicUsize,
    /// About what the events take that were pushed and not yet delivered. No model comes near a
    /// mark.
    bytes: std::sync::atomic::AtomicUsize,
    /// Events left out.
    dropped: std::sync::atomic::AtomicU64,
    #[cfg(feature = "tracing")]
    warned: std::sync::atomic::AtomicBool,
    pub(crate) waker: AtomicWaker,
    failure: OnceLock<SinkPanicked>,
}

#[derive(Debug)]
struct State {
    /// Pushed, not yet taken.
    buffer: VecDeque<Queued>,
    /// Taken, not yet delivered. `None` while somebody delivers: there is one consumer at a time.
    batch: Option<VecDeque<Queued>>,
    last_seq: u64,
    /// The instant of the last event: tasks read the clock before they get here, and may overtake
    /// each other in between.
    last_at: Instant,
    /// Heartbeats started and not ended, if the sink hears of both ends.
    heartbeats: usize,
    /// When `TopologyClosed` happened, while it is held back.
    closing: Option<Instant>,
    closed: bool,
    shedding: Shedding,
}

/// An event, and about how many bytes it takes.
#[derive(Debug)]
struct Queued {
    event: Event,
    bytes: usize,
}

impl EventQueue {
    /// The depth at which something is wrong with the sink: see [`high_water`](Self::high_water).
    pub const WARN_DEPTH: usize = 10_000;

    /// The queue of the topology with this id, for a sink with this interest.
    ///
    /// With [`Interest::NONE`] a push is one load and one branch.
    pub fn new(topology: ObjectId, interest: Interest) -> Self {
        Self {
            topology,
            interest: AtomicU32::new(interest.bits()),
            state: Mutex::new(State {
                buffer: VecDeque::new(),
                batch: Some(VecDeque::new()),
                last_seq: 0,
                last_at: Instant::EPOCH,
                heartbeats: 0,
                closing: None,
                closed: false,
                shedding: Shedding::default(),
            }),
            depth: AtomicUsize::new(0),
            high_water: 0.into(),
            bytes: 0.into(),
            dropped: 0.into(),
            #[cfg(feature = "tracing")]
            warned: false.into(),
            waker: AtomicWaker::new(),
            failure: OnceLock::new(),
        }
    }

    /// The id that all events of this queue carry.
    pub fn topology(&self) -> ObjectId {
        self.topology
    }

    /// What is delivered; empty once the sink has panicked.
    pub fn interest(&self) -> Interest {
        Interest::from_bits(self.interest.load(Ordering::Relaxed))
    }

    /// Whether an event of this name would be delivered; if not, its payload need not be built.
    pub fn wants(&self, name: EventName) -> bool {
        self.interest().contains(name)
    }

    /// Whether an event of any of these names would be delivered.
    pub fn wants_any(&self, names: Interest) -> bool {
        !self.interest().intersection(names).is_empty()
    }

    /// Appends an event that happened at `at`; one that the sink is not interested in is dropped
    /// and not counted, and so is whatever comes after the end.
    ///
    /// An event that says it happened before the one it comes after is given that one's time.
    ///
    /// Takes constant time and never waits for a sink, so it may be called under the topology lock.
    pub fn push(&self, at: Instant, kind: EventKind) {
        let interest = self.interest();
        if interest.is_empty() {
            return;
        }
        let name = kind.name();
        // The end counts even for a sink that does not want to hear of it.
        if !interest.contains(name) && name != EventName::TopologyClosed {
            return;
        }
        let mut state = self.lock();
        if state.closed {
            return;
        }
        if !self.admits(&mut state, at, interest, &kind) {
            return;
        }
        if interest.contains_all(Interest::HEARTBEATS) {
            state.count_heartbeat(name);
        }
        if name == EventName::TopologyClosed {
            state.closing.get_or_insert(at);
        } else {
            self.append(&mut state, at, kind);
        }
        if let Some(closed_at) = state.closing
            && state.heartbeats == 0
        {
            self.end(&mut state, closed_at);
        }
        drop(state);
        self.waker.wake();
    }

    /// Like [`push`](Self::push), but builds the payload only if somebody wants it.
    pub fn push_with(&self, at: Instant, name: EventName, kind: impl FnOnce() -> EventKind) {
        if self.wants(name) {
            self.push(at, kind());
        }
    }

    /// Ends the queue: what is in it is still delivered, what comes later is dropped.
    ///
    /// A `TopologyClosed` that waits for heartbeats is delivered without them, so this is for the
    /// time when no monitor is left.
    pub fn close(&self) {
        let mut state = self.lock();
        if let Some(closed_at) = state.closing {
            self.end(&mut state, closed_at);
        }
        state.closed = true;
        drop(state);
        self.waker.wake();
    }

    /// Whether the queue takes no more events.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// How many events have been pushed and not yet delivered.
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// The greatest depth there has been.
    ///
    /// At [`WARN_DEPTH`](Self::WARN_DEPTH) the sink is too slow or hangs, and memory grows.
    pub fn high_water(&self) -> usize {
        self.high_water.load(Ordering::Relaxed)
    }

    /// The panic that ended delivery, if the sink has panicked.
    pub fn sink_failed(&self) -> Option<&SinkPanicked> {
        self.failure.get()
    }

    /// Delivers to `sink`, on this thread, whatever is in the queue, and returns how many events
    /// that were.
    ///
    /// This is for programs without a [`Dispatcher`](crate::dispatch::Dispatcher): single-threaded
    /// mode drains at the end of each call. While somebody else delivers, also further down on this
    /// thread's own stack, nothing is done: that one will find the new events.
    pub fn drain_now(&self, sink: &dyn EventSink) -> u64 {
        let mut delivered = 0;
        loop {
            let round = self.deliver(sink, usize::MAX);
            delivered += round.delivered;
            // Whoever was turned away while this round ended relies on another one.
            if round.stopped != Stopped::Empty || self.depth() == 0 {
                return delivered;
            }
        }
    }

    fn append(&self, state: &mut State, at: Instant, kind: EventKind) {
        state.last_seq += 1;
        state.last_at = state.last_at.max(at);
        let bytes = weight(&kind);
        let event = Event {
            seq: state.last_seq,
            at: state.last_at,
            topology: self.topology,
            kind,
        };
        state.buffer.push_back(Queued { event, bytes });
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        self.high_water.fetch_max(depth, Ordering::Relaxed);
    }

    /// Appends the held back `TopologyClosed` and closes.
    fn end(&self, state: &mut State, closed_at: Instant) {
        self.end_shedding(state, closed_at);
        state.closing = None;
        state.closed = true;
        if self.wants(EventName::TopologyClosed) {
            self.append(state, closed_at, EventKind::TopologyClosed);
        }
    }

    /// Gives up delivery for good.
    pub(crate) fn fail(&self, failure: SinkPanicked) {
        self.interest
            .store(Interest::NONE.bits(), Ordering::Relaxed);
        let _ = self.failure.set(failure);
        let mut state = self.lock();
        state.closed = true;
        let undelivered = mem::take(&mut state.buffer);
        drop(state);
        self.forget(undelivered.len(), total(&undelivered));
    }

    /// Takes `count` events of `bytes` bytes out of what waits.
    fn forget(&self, count: usize, bytes: usize) {
        self.depth.fetch_sub(count, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Tells the log, if there is one, the first time the queue was found too deep. Not the pusher
    /// does it, because that one holds locks.
    pub(crate) fn warn_of_depth(&self) {
        #[cfg(feature = "tracing")]
        if self.high_water() >= Self::WARN_DEPTH && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "sdam::events",
                topologyId = %self.topology,
                depth = self.depth(),
                "events gather faster than the sink takes them"
            );
        }
        #[cfg(not(feature = "tracing"))]
        let _ = self;
    }

    /// Poisoning means nothing here: no code under the lock can leave the state half-changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all of them take.
fn total(events: &VecDeque<Queued>) -> usize {
    events.iter().map(|queued| queued.bytes).sum()
}

impl State {
    fn count_heartbeat(&mut self, name: EventName) {
        match name {
            EventName::ServerHeartbeatStarted => self.heartbeats += 1,
            EventName::ServerHeartbeatSucceeded | EventName::ServerHeartbeatFailed => {
                self.heartbeats = self.heartbeats.saturating_sub(1);
            }
            _ => {}
        }
    }
}
