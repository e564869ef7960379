//! Delivers topology events in order, without loss as long as the sink keeps up.
//!
//! The engine pushes events into an [`EventQueue`](queue::EventQueue) while it holds its own locks;
//! a [`Dispatcher`](dispatch::Dispatcher) takes the events out and calls the user's
//! [`EventSink`](sink::EventSink) without holding a lock. This crate spawns no tasks or threads,
//! depends on no runtime and reads no clock: events carry the time at which they happened.
//!
//! | module | content |
//! | --- | --- |
//! | [`sink`] | the trait to implement: [`EventSink`](sink::EventSink), [`Interest`](sink::Interest), combinators |
//! | [`queue`] | the ordered queue that producers share |
//! | [`dispatch`] | the future that drains the queue into a sink |
//! | [`channel`] | events as a stream, lossless or bounded |
//! | [`log`] | events as the log messages of the specification, for any logger |
//! | [`facts`] | facts derived from events: primaries, failovers, losses, times |
//! | [`history`] | the last transitions and their causes |
//! | `record` | recordings of inputs and events, as lines of JSON (feature `record`) |
//! | `replay` | replays a recording, and verifies that its inputs have the recorded effects (feature `record`) |
//! | `metrics` | metrics through the `metrics` facade (feature `metrics`) |
//! | `trace` | log messages through `tracing` (feature `tracing`) |
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod channel;
pub mod dispatch;
pub mod facts;
pub mod history;
pub mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod queue;
#[cfg(feature = "record")]
pub mod record;
#[cfg(feature = "record")]
pub mod replay;
pub mod sink;
#[cfg(not(sdam_loom))]
mod sync;
#[cfg(sdam_loom)]
pub mod sync;
#[cfg(feature = "tracing")]
pub mod trace;

#[cfg(all(test, sdam_loom))]
mod models;
#[cfg(test)]
mod test_support;
