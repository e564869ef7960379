//! Events: their parts, combinators of sinks, and the sinks that the library has.
//!
//! An [`EventSink`] receives the events of a topology, of its pools and of its clients, in order.
//! This sink counts elections:
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use sdam::{Event, EventKind, EventSink, Interest, events::EventName};
//!
//! #[derive(Debug, Default)]
//! struct Failovers(AtomicU64);
//!
//! impl EventSink for Failovers {
//!     fn interest(&self) -> Interest {
//!         Interest::of([EventName::FailoverEnded])
//!     }
//!
//!     fn on_event(&self, event: &Event) {
//!         if let EventKind::FailoverEnded(failover) = &event.kind {
//!             self.0.fetch_add(1, Ordering::Relaxed);
//!             println!("{failover:?}");
//!         }
//!     }
//! }
//! ```
//!
//! [`TopologyBuilder::sink`](crate::TopologyBuilder::sink) adds it. [`EventKind`] lists all events.
//! Others are built in: logs ([`log`], [`trace`]), [`metrics`], the [`history`] of servers, a
//! [`channel`], [`facts`] about outages, recordings ([`record`]) and their [`replay`].
//!
//! [`EventSink`]: crate::EventSink
//! [`EventKind`]: crate::EventKind

pub use sdam_core::event::{
    CheckOutFailure, CommandInfo, ConnectionClosedReason, ConnectionId, EventName, EventPublisher,
};
#[cfg(feature = "metrics")]
pub use sdam_events::metrics;
#[cfg(feature = "tracing")]
pub use sdam_events::trace;
pub use sdam_events::{
    channel, facts, history, log,
    queue::PendingEvents,
    sink::{Fanout, Filter, sink_fn},
};
#[cfg(feature = "record")]
pub use sdam_events::{record, replay};
