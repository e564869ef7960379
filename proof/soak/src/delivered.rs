//! The events that a client has delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sdam::client::Client;
use sdam::events::sink::sink_fn;
use sdam::{Event, EventName, EventSink, Interest};

/// Counts the events at a client's sink, and checks their numbers.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    count: AtomicU64,
    /// The number of the last event, which is the number of published events.
    last: AtomicU64,
    has_gap: AtomicBool,
    is_closed: AtomicBool,
}

impl Delivered {
    /// Returns a sink for all events.
    pub(crate) fn sink(self: &Arc<Self>) -> impl EventSink + use<> {
        let delivered = Arc::clone(self);
        sink_fn(move |event| delivered.tell(event)).interested_in(Interest::ALL)
    }

    fn tell(&self, event: &Event) {
        let count = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.has_gap.fetch_or(event.seq != count, Ordering::SeqCst);
        self.last.store(event.seq, Ordering::SeqCst);
        let is_closed = event.kind.name() == EventName::TopologyClosed;
        self.is_closed.fetch_or(is_closed, Ordering::SeqCst);
    }

    /// Returns the numbers of events that were published and delivered, without dropped ones.
    pub(crate) fn totals(&self) -> [u64; 2] {
        [&self.last, &self.count].map(|number| number.load(Ordering::SeqCst))
    }

    /// Returns whether the last event was delivered.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Returns what is wrong with the events of a client that publishes none at present.
    pub(crate) fn fault(&self, client: &Client) -> Option<String> {
        let events = client.topology().events();
        let (dropped, depth) = (events.dropped(), events.depth());
        let has_gap = self.has_gap.load(Ordering::SeqCst);
        let is_complete = self.is_closed() == events.is_closed();
        (dropped > 0 || depth > 0 || has_gap || !is_complete).then(|| {
            let [published, delivered] = self.totals();
            format!(
                "{delivered} of {published} events were delivered: {dropped} dropped, {depth} \
                 left, gap: {has_gap}, complete: {is_complete}"
            )
        })
    }
}
