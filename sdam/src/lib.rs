//! MongoDB server discovery, monitoring and selection on any runtime.
//!
//! A [`topology::Topology`] discovers the servers of a deployment, monitors them, controls
//! connection pools, publishes events, and selects a server for each operation.
//!
//! A [`scan::ScanTopology`] does the same without background tasks, for single-threaded programs.
//!
//! This crate depends on no particular runtime. A topology is started on a
//! [`Runtime`](sdam_transport::runtime::Runtime) value, made by a function of [`runtime`] or by
//! hand.
//!
//! ```no_run
//! use sdam::{
//!     core::read_preference::{ReadMode, ReadPreference}, runtime,
//!     selection::criteria::Criteria, topology::Topology,
//! };
//!
//! # #[cfg(feature = "runtime-tokio")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let topology = Topology::builder("mongodb://db-0.example.com/?replicaSet=rs0")?
//!     .start(runtime::tokio()?)?;
//! let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest))?;
//! let server = topology.select(&nearest).await?;
//! println!("read from {}", server.address());
//! topology.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `runtime-tokio` (default) | `runtime::tokio` |
//! | `runtime-smol` | `runtime::smol` |
//! | `runtime-async-std` | `runtime::async_std`, for programs that still run on it |
//! | `blocking` | `blocking`, `runtime::blocking`: single-threaded mode on the system's sockets |
//! | `sim` | `sim`: simulated deployments |
//! | `metrics` | `events::metrics`: numbers, for the exporter of your choice |
//! | `tracing` | `events::trace`: log messages, for the subscriber of your choice |
//! | `replay` | `events::replay`: the proof that a recording happens again |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod alarm;
#[cfg(feature = "blocking")]
pub mod blocking;
pub mod builder;
mod cell;
mod demand;
pub mod error;
pub mod failures;
mod held;
mod introduction;
mod link;
mod mailbox;
#[cfg(all(test, sdam_loom))]
mod models;
mod monitor;
mod pending;
mod report;
mod rtt;
pub mod runtime;
pub mod scan;
mod select;
pub mod selected;
mod server;
pub mod service;
pub mod snapshot;
mod sync;
mod tasks;
pub mod topology;
pub mod watch;

/// Types and state machines of server discovery and monitoring.
pub use sdam_core as core;
/// Event sinks, logs and metrics.
pub use sdam_events as events;
/// Server selection: criteria, explanations and diagnoses.
pub use sdam_select as selection;
#[cfg(feature = "sim")]
pub use sdam_sim as sim;
/// The interfaces of a runtime: transport, clock, spawner.
pub use sdam_transport as transport;
