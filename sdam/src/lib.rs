//! MongoDB server discovery, monitoring and selection on any runtime.
//!
//! A [`Topology`] discovers the servers of a deployment, monitors them, controls
//! connection pools, publishes events, and selects a server for each operation.
//!
//! A [`ScanTopology`] does the same without background tasks, for single-threaded programs.
//!
//! This crate depends on no particular runtime. A topology is started on a
//! [`Runtime`] value, made by a function of [`runtime`] or by
//! hand.
//!
//! ```no_run
//! use sdam::{Criteria, ReadMode, ReadPreference, Topology, runtime};
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

mod engine;
#[cfg(all(test, sdam_loom))]
mod models;
mod monitor;
pub mod runtime;
mod select;
mod single_threaded;
mod sync;
mod topology;

#[doc(inline)]
pub use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, Cause, ErrorOutcome},
    error::{ErrorKind, ServerError, Stage},
    event::{Event, EventKind, EventName},
    ids::{Generation, ObjectId, ServerId},
    options::{ConfigError, Options, Warning},
    pool::{
        NewPool, NoPools, PoolClear, PoolError, PoolFactory, PoolHandle, Reporter,
        ServiceConnection,
    },
    read_preference::{ReadMode, ReadPreference},
    server::{ServerDescription, ServerType, WireVersions},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
#[doc(inline)]
pub use sdam_events::{
    queue::PendingEvents,
    sink::{EventSink, Interest},
};
#[doc(inline)]
pub use sdam_select::{
    candidate::{Candidates, Selector},
    criteria::{Criteria, CriteriaError},
    diagnose::Diagnosis,
    explain::Explanation,
};
/// Implements the seams, whose methods are asynchronous.
pub use sdam_transport::async_trait;
#[doc(inline)]
pub use sdam_transport::{
    clock::Clock,
    connect::{Connection, Transport},
    error::TransportError,
    establish::{EstablishError, Established, establish},
    handshake::{ClientMetadata, Library},
    runtime::{Io, Runtime},
    spawn::{Spawner, Task},
};

#[cfg(feature = "blocking")]
pub use self::single_threaded::BlockingTopology;
pub use self::{
    engine::{
        failures::{Failure, Failures},
        snapshot::{ServerState, Snapshot, SnapshotGuard},
    },
    select::{
        error::{SelectionError, StartError},
        selected::SelectedServer,
        timeout::{Bound, SelectionTimeout},
    },
    single_threaded::{Channel, ScanTopology},
    topology::{Topology, TopologyBuilder, Watch, WeakTopology},
};

/// Types and state machines of server discovery and monitoring.
pub use sdam_core as discovery;
/// Event sinks, logs and metrics.
pub use sdam_events as events;
/// Server selection: criteria, explanations and diagnoses.
pub use sdam_select as selection;
#[cfg(feature = "sim")]
pub use sdam_sim as sim;
/// The interfaces of a runtime: transport, clock, spawner.
pub use sdam_transport as transport;
