//! Pure MongoDB server selection.
//!
//! Selection decides which servers of a
//! [`TopologyDescription`](sdam_core::topology::TopologyDescription) are suitable for an operation,
//! and chooses one of them. If there is none, it explains the reason and the remedy.
//!
//! This crate never waits, locks, reads a clock or draws random numbers: the description, the
//! number of operations in progress and the random bits are arguments. The owner of the topology
//! waits for a suitable server. The crate is `no_std`, and [`choose`] allocates nothing, except
//! with more than 1024 servers or with selectors.
//!
//! ```
//! use sdam_core::{
//!     ids::ServerId,
//!     read_preference::{ReadMode, ReadPreference},
//!     server::{ServerDescription, ServerType},
//!     topology::{TopologyDescription, TopologyType},
//! };
//! use sdam_select::{choose, criteria::Criteria, explain::explain, settings::Settings};
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
//! | module | contents |
//! | --- | --- |
//! | [`criteria`] | the operation's criteria |
//! | [`settings`] | the client's settings |
//! | [`choose`] | selection in one call |
//! | [`suitable`], [`latency_window`] | the first steps of selection |
//! | [`candidate`] | candidate servers, and application-provided selectors |
//! | [`readable`] | whether a topology is readable or writable |
//! | [`mod@explain`], [`mod@diagnose`], [`error_text()`] | explanations, diagnoses and errors |
//! | [`command`] | passing the read preference to the selected server |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![warn(clippy::indexing_slicing)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod algorithm;
pub mod candidate;
pub mod command;
pub mod criteria;
pub mod diagnose;
mod error_text;
pub mod explain;
pub mod readable;
pub mod settings;
pub mod staleness;
mod suitability;
#[cfg(test)]
mod testing;

pub use algorithm::{choose, latency_window, suitable};
pub use error_text::error_text;
