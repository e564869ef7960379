//! Pure MongoDB server selection.
//!
//! Which servers of a [`TopologyDescription`](sdam_core::topology::TopologyDescription) may serve an
//! operation, which of them is taken, and, if there is none, why not and what to do about it.
//!
//! This crate never waits, never locks, never reads a clock and never draws randomness of its own:
//! the description, the number of operations in progress and the random bits are arguments.
//! Waiting for a suitable server is the business of whoever owns the topology.
//! It is `no_std`, and [`choose`] allocates nothing.
//!
//! ```
//! use sdam_core::{
//!     ids::ServerId,
//!     read_preference::{ReadMode, ReadPreference},
//!     server::{ServerDescription, ServerType},
//!     topology::{TopologyDescription, TopologyType},
//! };
//! use sdam_select::{choose, criteria::Criteria, explain, settings::Settings};
//!
//! let mut secondary = ServerDescription::unknown(ServerId::from_u64(1), "a:27017".parse()?);
//! secondary.server_type = ServerType::RsSecondary;
//! let topology = TopologyDescription::new(TopologyType::ReplicaSetNoPrimary, [secondary]);
//! let settings = Settings::default();
//!
//! let reading = Criteria::read(ReadPreference::new(ReadMode::SecondaryPreferred))?;
//! let (idle, random) = (|_| 0, 42);
//! let server = choose(&topology, &settings, &reading, idle, random)?;
//! assert!(server.is_some_and(|server| server.address.as_str() == "a:27017"));
//!
//! let writing = Criteria::write();
//! assert!(choose(&topology, &settings, &writing, idle, random)?.is_none());
//! assert_eq!(
//!     explain(&topology, &settings, &writing).to_string(),
//!     "write operation on ReplicaSetNoPrimary: a:27017 (RSSecondary) is not a primary"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`criteria`] | what the operation asks for |
//! | [`settings`] | what the client has configured |
//! | [`choose`] | the whole of selection in one call |
//! | [`suitable`], [`window`], [`pick`] | its three steps, one by one |
//! | [`candidate`] | servers on their way through selection, and application-provided selectors |
//! | [`readable`] | whether there is a server to read from or to write to at all |
//! | [`mod@explain`], [`mod@diagnose`], [`error_text()`] | why there is none, what is wrong, in words |
//! | [`command`] | telling the selected server the read preference |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![warn(clippy::indexing_slicing)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod candidate;
pub mod command;
pub mod criteria;
pub mod diagnose;
mod error_text;
pub mod explain;
pub mod readable;
mod rule;
pub mod settings;
mod staleness;
mod steps;
#[cfg(test)]
mod testing;

pub use diagnose::diagnose;
pub use error_text::error_text;
pub use explain::explain;
pub use steps::{choose, pick, suitable, window};
