//! The event queue between the producers (monitors, application threads) and the dispatcher.

use std::{
    collections::VecDeque,
    mem,
    sync::{OnceLock, PoisonError},
};

use sdam_core::{
    event::{Event, EventKind, EventName, EventPublisher},
    ids::ObjectId,
    time::{Instant, UnixTime},
};

use crate::{
    sink::{self, EventSink, Interest, SinkPanicked},
    sync::{
        AtomicWaker, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use self::shed::{Shedding, weight};

mod shed;
#[cfg(test)]
mod tests;

/// The ordered queue of one topology's events.
///
/// Events are dropped only if the sink falls far behind. A sink that hangs, or is too slow for the
/// rate of events, cannot make memory grow without bound:
///
/// - Above [`SHED_BYTES`](Self::SHED_BYTES), new heartbeats, selections and commands are dropped as
///   a whole: if the start of one was delivered, so is its end. Events of check-outs and
///   check-ins are dropped individually.
/// - Above [`FULL_BYTES`](Self::FULL_BYTES), all events are dropped except those of heartbeats,
///   selections and commands under way, and `TopologyClosed`.
///
/// [`dropped`](Self::dropped) counts the dropped events, and an `EventsDropped` marks the beginning
/// and the end of a gap. A sink that tracks servers by events can continue from the first
/// description after the gap.
///
/// Producers push from any thread, usually while they hold the lock under which they made the
/// change, so the order in the queue is the order of the changes. [`Event::seq`] is assigned under
/// the queue's own lock, which is held only to append, never while a sink runs.
///
/// `TopologyClosed` closes the queue. It is held back while heartbeats, connections, check-outs or
/// commands are under way, so that all of these end first and `TopologyClosed` is the last event.
/// [`close`](Self::close) ends this wait early.
pub struct EventQueue {
    topology: ObjectId,
    wall: Option<Wall>,
    /// The bits of an [`Interest`]; cleared after a panic of the sink.
    interest: AtomicU64,
    state: Mutex<QueueState>,
    /// The number of undelivered events.
    depth: Gauge,
    /// The maximum depth so far, written under the lock.
    high_water: std::sync::atomic::AtomicUsize,
    /// The approximate size of the undelivered events.
    bytes: Gauge,
    /// The number of dropped events.
    dropped: std::sync::atomic::AtomicU64,
    #[cfg(feature = "tracing")]
    warned: std::sync::atomic::AtomicBool,
    pub(crate) waker: AtomicWaker,
    failure: OnceLock<SinkPanicked>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Pushed events that have not been taken.
    buffer: VecDeque<Event>,
    /// Events that were taken but not delivered. `None` while a consumer is delivering, because
    /// only one may deliver at a time.
    batch: Option<VecDeque<Event>>,
    last_seq: u64,
    /// The time of the last event. Tasks read the clock before they push, and may overtake each
    /// other in between, so the next event may have an earlier time.
    last_at: Instant,
    under_way: UnderWay,
    /// The time at which the topology was closed, while `TopologyClosed` is held back.
    closing: Option<Instant>,
    closed: bool,
    shedding: Shedding,
}

/// The wall clock.
struct Wall(Box<dyn Fn() -> UnixTime + Send + Sync>);

sdam_core::opaque!(Wall);

impl EventQueue {
    /// The depth that indicates a hanging or slow sink.
    #[cfg(feature = "tracing")]
    pub(crate) const WARN_DEPTH: usize = 10_000;

    /// Creates the queue for the events of `topology`. Its sink receives the events in `interest`.
    ///
    /// With [`Interest::NONE`], a push is one load and one branch.
    pub fn new(topology: ObjectId, interest: Interest) -> Self {
        Self {
            topology,
            wall: None,
            interest: AtomicU64::new(interest.bits()),
            state: Mutex::new(QueueState { batch: Some(VecDeque::new()), ..QueueState::default() }),
            depth: Gauge::default(),
            high_water: 0.into(),
            bytes: Gauge::default(),
            dropped: 0.into(),
            #[cfg(feature = "tracing")]
            warned: false.into(),
            waker: AtomicWaker::new(),
            failure: OnceLock::new(),
        }
    }

    /// Sets the wall clock, which is read for each event.
    #[must_use]
    pub fn with_wall(mut self, wall: impl Fn() -> UnixTime + Send + Sync + 'static) -> Self {
        self.wall = Some(Wall(Box::new(wall)));
        self
    }

    /// Returns the topology id that all events of this queue carry.
    pub fn topology(&self) -> ObjectId {
        self.topology
    }

    /// Returns the set of events that are delivered. It is empty after a panic of the sink.
    pub(crate) fn interest(&self) -> Interest {
        Interest::from_bits(self.interest.load(Ordering::Relaxed))
    }

    /// Returns whether an event called `name` would be delivered. Only then does its payload have
    /// to be built.
    pub(crate) fn wants(&self, name: EventName) -> bool {
        self.interest().contains(name)
    }

    /// Returns whether an event with any of the given names would be delivered.
    pub fn wants_any(&self, names: Interest) -> bool {
        !self.interest().intersection(names).is_empty()
    }

    /// Appends an event that happened at `at`. Events that are outside the sink's interest, or that
    /// arrive after the queue is closed, are discarded without being counted.
    ///
    /// An event that is earlier than its predecessor gets the predecessor's time.
    ///
    /// Takes constant time and never waits for a sink, so it may be called under the topology lock.
    pub fn push(&self, at: Instant, kind: EventKind) {
        let interest = self.interest();
        if interest.is_empty() {
            return;
        }
        let name = kind.name();
        // `TopologyClosed` closes the queue even if the sink is not interested in it.
        if !interest.contains(name) && name != EventName::TopologyClosed {
            return;
        }
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.under_way.count(name, interest);
        if name == EventName::TopologyClosed {
            state.closing.get_or_insert(at);
        } else if self.admits(&mut state, at, interest, &kind) {
            self.append(&mut state, at, kind);
        }
        self.end_unless_under_way(&mut state);
        drop(state);
        self.waker.wake();
    }

    /// Appends an event like [`push`](Self::push), but builds the payload only if the sink needs
    /// it.
    pub fn push_with(&self, at: Instant, name: EventName, kind: impl FnOnce() -> EventKind) {
        if self.wants(name) {
            self.push(at, kind());
        }
    }

    /// Closes the queue: queued events are still delivered, later ones are discarded.
    ///
    /// A held-back `TopologyClosed` is appended, and the missing end events of heartbeats and
    /// operations still under way [count as dropped](Self::dropped). Returns whether
    /// `TopologyClosed` was held back.
    pub fn close(&self) -> bool {
        let mut state = self.lock();
        let closing = state.closing;
        if let Some(closed_at) = closing {
            self.leave_out(state.under_way.total());
            self.end(&mut state, closed_at);
        }
        state.closed = true;
        drop(state);
        self.waker.wake();
        closing.is_some()
    }

    /// Closes the queue after the last monitor has ended: no heartbeat is under way any more, but
    /// connections, check-outs and commands may be. If no `TopologyClosed` is held back, the queue
    /// is closed at once.
    pub fn monitors_ended(&self) {
        let mut state = self.lock();
        state.under_way.end_heartbeats();
        if state.closing.is_none() {
            state.closed = true;
        }
        self.end_unless_under_way(&mut state);
        drop(state);
        self.waker.wake();
    }

    /// Returns whether the queue is closed, so that it accepts no more events.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns the number of undelivered events.
    pub fn depth(&self) -> usize {
        self.depth.get()
    }

    /// Returns the maximum depth so far.
    pub(crate) fn high_water(&self) -> usize {
        self.high_water.load(Ordering::Relaxed)
    }

    /// Returns a read-only view of the undelivered events.
    pub fn pending(&self) -> PendingEvents<'_> {
        PendingEvents(self)
    }

    /// Returns the panic of a sink, if one has ended the delivery of events.
    pub fn sink_failed(&self) -> Option<&SinkPanicked> {
        self.failure.get()
    }

    /// Delivers the queued events to `sink` on this thread, and returns their number.
    ///
    /// Meant for programs without a [`Dispatcher`](crate::dispatch::Dispatcher): single-threaded
    /// mode, for example, drains the queue at the end of each call. If another consumer is
    /// delivering, possibly further up on this thread's own stack, this call returns 0 and that
    /// consumer delivers the new events.
    pub fn drain_now(&self, sink: &dyn EventSink) -> u64 {
        let mut delivered = 0;
        loop {
            let stopped = self.deliver(sink, usize::MAX, &mut delivered);
            // Another consumer may have returned 0 because this consumer was busy. In that case,
            // this consumer delivers the other consumer's events in another round.
            if stopped != Stopped::Empty || self.depth() == 0 {
                return delivered;
            }
        }
    }

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

    /// Takes the right to deliver; `None` while another consumer has it.
    fn take_batch(&self) -> Option<Batch<'_>> {
        let events = self.lock().batch.take()?;
        Some(Batch { queue: self, events })
    }

    fn append(&self, state: &mut QueueState, at: Instant, kind: EventKind) {
        state.last_seq += 1;
        state.last_at = state.last_at.max(at);
        self.bytes.add(weight(&kind));
        self.depth.add(1);
        let depth = self.depth.get();
        if depth > self.high_water() {
            self.high_water.store(depth, Ordering::Relaxed);
        }
        let mut event = Event::new(state.last_seq, state.last_at, self.topology, kind);
        event.time = self.wall.as_ref().map(|Wall(now)| now());
        state.buffer.push_back(event);
    }

    /// Appends the held-back `TopologyClosed`, if there is one and no heartbeat or operation is
    /// under way.
    fn end_unless_under_way(&self, state: &mut QueueState) {
        if let Some(closed_at) = state.closing
            && state.under_way.total() == 0
        {
            self.end(state, closed_at);
        }
    }

    /// Appends the held-back `TopologyClosed` and closes the queue.
    fn end(&self, state: &mut QueueState, closed_at: Instant) {
        self.end_shedding(state, closed_at);
        state.closing = None;
        state.closed = true;
        if self.wants(EventName::TopologyClosed) {
            self.append(state, closed_at, EventKind::TopologyClosed);
        }
    }

    /// Ends delivery for good, because the sink has panicked. Called by the consumer.
    fn fail(&self, failure: SinkPanicked) {
        self.interest.store(Interest::NONE.bits(), Ordering::Relaxed);
        let _ = self.failure.set(failure);
        let mut state = self.lock();
        state.closed = true;
        let undelivered = mem::take(&mut state.buffer);
        drop(state);
        self.forget(&undelivered);
    }

    /// Subtracts `events` from the recorded depth and size. Called by the consumer.
    fn forget<'e>(&self, events: impl IntoIterator<Item = &'e Event>) {
        for event in events {
            self.depth.subtract(1);
            self.bytes.subtract(weight(&event.kind));
        }
    }

    /// Logs a warning (feature `tracing`) the first time the depth reaches `WARN_DEPTH`. The
    /// consumer does this, because producers hold locks.
    fn warn_of_depth(&self) {
        #[cfg(feature = "tracing")]
        if self.high_water() >= Self::WARN_DEPTH && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "sdam::events",
                topologyId = %self.topology,
                depth = self.depth(),
                "events are queued faster than the sink processes them"
            );
        }
        #[cfg(not(feature = "tracing"))]
        let _ = self;
    }

    /// Locks the state. Poisoning is ignored: no code that holds the lock can leave the state
    /// half-changed.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventPublisher for EventQueue {
    fn wants(&self, name: EventName) -> bool {
        self.wants(name)
    }

    fn publish(&self, at: Instant, kind: EventKind) {
        self.push(at, kind);
    }
}

sdam_core::opaque!(EventQueue, |this|
    depth: this.depth(),
    bytes: this.bytes(),
    high_water: this.high_water(),
    dropped: this.dropped(),
    is_closed: this.is_closed()
);

/// A view of a topology's undelivered events, for metrics and health checks.
#[derive(Clone, Copy, Debug)]
pub struct PendingEvents<'q>(&'q EventQueue);

impl<'q> PendingEvents<'q> {
    /// Returns the number of undelivered events, see [`EventQueue::depth`].
    pub fn depth(&self) -> usize {
        self.0.depth()
    }

    /// Returns the approximate size of the undelivered events, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Returns the maximum depth so far.
    ///
    /// A depth of 10,000 means that the sink is too slow or hangs. The undelivered events may then
    /// grow to about [`EventQueue::FULL_BYTES`].
    pub fn high_water(&self) -> usize {
        self.0.high_water()
    }

    /// Returns the number of dropped events, see [`EventQueue::dropped`].
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Returns the panic that ended delivery, if the sink has panicked.
    pub fn sink_failed(&self) -> Option<&'q SinkPanicked> {
        self.0.sink_failed()
    }

    /// Delivers the events to `sink` on this thread, and returns their number. Programs can use it
    /// to deliver the events that are left after the runtime has shut down. See
    /// [`EventQueue::drain_now`].
    pub fn deliver_now(&self, sink: &dyn EventSink) -> u64 {
        self.0.drain_now(sink)
    }
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

/// The exclusive right to deliver events, and the events taken from the queue so far.
///
/// When the batch is dropped, undelivered events return to the front of the queue, so dropping a
/// dispatcher loses no event.
#[derive(Debug)]
struct Batch<'q> {
    queue: &'q EventQueue,
    events: VecDeque<Event>,
}

impl Batch<'_> {
    /// Returns the next event, or the reason why there is none. The lock is taken once for all
    /// events that have accumulated.
    fn next(&mut self) -> Result<&Event, Stopped> {
        if self.events.is_empty() {
            let mut state = self.queue.lock();
            // Both buffers keep their capacity, so steady traffic allocates nothing.
            mem::swap(&mut self.events, &mut state.buffer);
            if self.events.is_empty() && state.closed {
                return Err(Stopped::Closed);
            }
        }
        self.events.front().ok_or(Stopped::Empty)
    }

    /// Removes the event that [`next`](Self::next) has returned.
    fn delivered(&mut self) {
        self.queue.forget(&self.events.pop_front());
    }

    /// Discards all taken events.
    fn discard(&mut self) {
        self.queue.forget(&self.events);
        self.events.clear();
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let more = state.closed || !self.events.is_empty() || !state.buffer.is_empty();
        state.batch = Some(mem::take(&mut self.events));
        drop(state);
        // Wakes a dispatcher that found the batch taken or has used up its budget.
        if more {
            self.queue.waker.wake();
        }
    }
}

/// The kinds of operations that are counted, heartbeats first. Each kind has the event that begins
/// an operation, and the set of all events of such an operation.
const COUNTED: [(EventName, Interest); 4] = [
    (EventName::ServerHeartbeatStarted, Interest::HEARTBEATS),
    (
        EventName::ConnectionCreated,
        Interest::of(&[EventName::ConnectionCreated, EventName::ConnectionClosed]),
    ),
    (
        EventName::ConnectionCheckOutStarted,
        Interest::CHECK_OUTS.without(Interest::of(&[EventName::ConnectionCheckedIn])),
    ),
    (EventName::CommandStarted, Interest::COMMANDS),
];

/// The numbers of heartbeats and operations under way for which the sink receives both start and
/// end.
///
/// Operations that were shed are counted as well: an end event does not show whether the matching
/// start was shed, so the count would otherwise reach zero too early.
#[derive(Debug, Default)]
struct UnderWay([usize; COUNTED.len()]);

impl UnderWay {
    /// Counts an event called `name`, if the sink's `interest` covers all events of that kind.
    fn count(&mut self, name: EventName, interest: Interest) {
        for ((begin, whole), count) in COUNTED.into_iter().zip(&mut self.0) {
            if whole.contains(name) && interest.contains_all(whole) {
                *count = if name == begin { *count + 1 } else { count.saturating_sub(1) };
            }
        }
    }

    fn end_heartbeats(&mut self) {
        self.0[0] = 0;
    }

    fn total(&self) -> usize {
        self.0.iter().sum()
    }
}

/// The difference between two counters, each of which has only one writer at a time: producers add
/// under the lock, and the consumer subtracts. Neither counter therefore needs an atomic
/// read-modify-write operation, which would cost a producer several times as much as a load and a
/// store.
#[derive(Debug, Default)]
struct Gauge {
    added: AtomicUsize,
    subtracted: AtomicUsize,
}

impl Gauge {
    /// Adds to the difference. Called under the lock of the queue.
    fn add(&self, count: usize) {
        advance(&self.added, count);
    }

    /// Subtracts a number that is known to have been added. Called by the consumer.
    fn subtract(&self, count: usize) {
        advance(&self.subtracted, count);
    }

    /// Returns the difference, or zero if the reader sees a subtraction before the addition that
    /// preceded it.
    fn get(&self) -> usize {
        let subtracted = self.subtracted.load(Ordering::Relaxed);
        let difference = self.added.load(Ordering::Relaxed).wrapping_sub(subtracted);
        if difference > usize::MAX / 2 { 0 } else { difference }
    }
}

/// Advances a counter, which wraps around. No other thread may write it at the same time.
fn advance(counter: &AtomicUsize, count: usize) {
    let value = counter.load(Ordering::Relaxed);
    counter.store(value.wrapping_add(count), Ordering::Relaxed);
}
