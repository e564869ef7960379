//! Pure state machines of MongoDB Server Discovery And Monitoring.
//!
//! This crate never performs I/O, awaits, reads a clock or draws its own random numbers. Bytes,
//! time ([`time::Instant`]) and seeds ([`rng::Rng`]) are passed as arguments, and the actions to
//! perform are returned as [`#[must_use]`](deployment::Outputs) outputs. It is `no_std`, so the
//! compiler rules out I/O and clocks.
//!
//! | module | contents |
//! | --- | --- |
//! | [`address`], [`ids`], [`time`], [`rng`] | basic types |
//! | [`hello`] | one-pass parser of hello replies, builder of hello requests |
//! | [`reply`] | errors in replies to other commands |
//! | [`command`] | the fields of a command that determine what a client adds to it |
//! | [`document`] | writer for BSON documents, and their display as Extended JSON |
//! | [`error`] | errors from servers, connections and operations, as plain data |
//! | [`server`], [`topology`] | immutable descriptions and their equality |
//! | [`deployment`] | [`deployment::Deployment`]: a client's view; takes inputs, returns outputs |
//! | [`monitor`], [`rtt`] | one server's check loop and its round-trip times |
//! | [`srv`] | hosts of SRV records |
//! | [`pool`] | clears and errors of connection pools |
//! | [`report`] | errors reported by operations and pools |
//! | [`session`] | server sessions, and the numbers of retryable writes |
//! | [`read_preference`] | the members that may be read from |
//! | [`event`] | published events, in order |
//! | [`options`] | all options, validated |
//! | [`uri`], [`uri_options`] | connection strings and their options |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![warn(clippy::indexing_slicing)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod command;
pub mod deployment;
pub mod document;
#[cfg(feature = "serde")]
mod encoding;
pub mod error;
pub mod event;
pub mod hello;
pub mod ids;
pub mod monitor;
pub mod options;
pub mod pool;
pub mod read_preference;
pub mod reply;
pub mod report;
pub mod rng;
pub mod rtt;
pub mod server;
pub mod session;
pub mod srv;
mod text;
pub mod time;
pub mod topology;
pub mod uri;
pub mod uri_options;

#[doc(hidden)]
pub use text::{Joined, closest};
