//! Pure state machines of MongoDB Server Discovery And Monitoring.
//!
//! This crate never performs I/O, never awaits, never reads a clock and never draws randomness of
//! its own: bytes, time ([`time::Instant`]) and seeds ([`rng::Rng`]) are arguments, and whatever has
//! to happen in the world is returned as [`#[must_use]`](machine::Effects) effects.
//! It is `no_std`, so the compiler checks that promise.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`address`], [`ids`], [`time`], [`rng`] | the vocabulary |
//! | [`hello`] | one-pass parser of hello replies, builder of hello requests |
//! | [`reply`] | what replies to other commands say about the server |
//! | [`error`] | what went wrong with a server, as plain data |
//! | [`server`], [`topology`] | immutable descriptions and their equality |
//! | [`machine`] | [`machine::TopologyMachine`]: outcomes in, effects out |
//! | [`monitor`], [`rtt`] | one server's check loop and its round-trip times |
//! | [`scan`] | when a client without background work checks which server |
//! | [`pool`] | the commands given to connection pools, and the errors of pools |
//! | [`app_error`] | what operations and pools report |
//! | [`read_preference`] | which members may be read from |
//! | [`event`] | what is published, in order |
//! | [`options`], [`uri`] | every knob, validated; connection strings |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![warn(clippy::indexing_slicing)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod app_error;
mod document;
pub mod error;
pub mod event;
pub mod hello;
pub mod ids;
pub mod machine;
pub mod monitor;
pub mod options;
pub mod pool;
pub mod read_preference;
pub mod reply;
pub mod rng;
pub mod rtt;
pub mod scan;
pub mod server;
pub mod time;
pub mod topology;
pub mod uri;
