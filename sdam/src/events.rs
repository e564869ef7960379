//! Events: their parts, combinators of sinks, and the sinks that the library has.
//!
//! An [`EventSink`] receives the events of a topology, of its pools and of its clients, in order.
//! A function is one, too:
//!
//! ```
//! use sdam::{EventKind, events::{EventName, sink_fn}};
//!
//! let sink = sink_fn(|event| {
//!     if let EventKind::TopologyDescriptionChanged { new, .. } = &event.kind {
//!         println!("the primary is {:?}", new.primary().map(|server| &server.address));
//!     }
//! })
//! .interested_in(EventName::TopologyDescriptionChanged.into());
//! # drop(sink);
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
    sink::{SinkFn, sink_fn},
};
#[cfg(feature = "record")]
pub use sdam_events::{record, replay};
