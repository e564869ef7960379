//! MongoDB server discovery, monitoring and selection on any runtime.
//!
//! A [`Topology`] discovers the servers of a deployment, monitors them, controls connection pools,
//! publishes events, and selects a server for each operation.
//!
//! A [`ScanTopology`] does the same without background tasks, for single-threaded programs.
//!
//! This crate does not depend on a particular runtime. A topology is started on a [`Runtime`]
//! value, which you get from a function of [`runtime`] or create yourself.
//!
//! # Start and select
//!
//! ```no_run
//! use sdam::{Criteria, ReadMode, ReadPreference, Topology, runtime};
//!
//! # #[cfg(feature = "runtime-tokio")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let topology = Topology::builder("mongodb://db-0.example.com/?replicaSet=rs0")?
//!     .options(|options| options.app_name = Some("orders".into()))
//!     .start(runtime::tokio()?)?;
//! let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest))?;
//! let server = topology.select(&nearest).await?;
//! println!("read from {}", server.address());
//! topology.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Your pool
//!
//! A [`PoolFactory`] creates the pool of each server. The topology marks it ready and clears it
//! ([`PoolHandle`]), and every selection returns a typed reference to it:
//!
//! ```no_run
//! use sdam::{Criteria, PoolClear, PoolContext, PoolFactory, PoolHandle, Topology, runtime};
//!
//! #[derive(Debug)]
//! struct Pools;
//!
//! /// A pool that opens a connection for each operation.
//! #[derive(Debug)]
//! struct Pool(PoolContext);
//!
//! impl PoolFactory for Pools {
//!     type Pool = Pool;
//!
//!     fn create(&self, context: PoolContext) -> Pool {
//!         Pool(context)
//!     }
//! }
//!
//! impl PoolHandle for Pool {
//!     fn ready(&self) {}
//!     fn clear(&self, _: &PoolClear) {}
//!     fn close(&self) {}
//! }
//!
//! # #[cfg(feature = "runtime-tokio")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let topology = Topology::builder("mongodb://db-0.example.com/?replicaSet=rs0")?
//!     .pools(Pools)
//!     .start(runtime::tokio()?)?;
//! let server = topology.select(&Criteria::write()).await?;
//! // Connects, exchanges hello, and reports the reply or the error to the topology.
//! let connection = server.pool().0.establish(None).await?;
//! println!("a connection of generation {}", connection.generation());
//! connection.close();
//! # Ok(())
//! # }
//! ```
//!
//! # Your sink
//!
//! An [`EventSink`] receives the events of a topology, its pools and its client, in order:
//!
//! ```no_run
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//!
//! use sdam::{Event, EventSink, Interest, Topology, events::EventName, runtime};
//!
//! /// Counts the failed checks of servers.
//! #[derive(Debug, Default)]
//! struct Failures(AtomicU64);
//!
//! impl EventSink for Failures {
//!     fn emit(&self, _: &Event) {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!     }
//!
//!     fn interest(&self) -> Interest {
//!         EventName::ServerHeartbeatFailed.into()
//!     }
//! }
//!
//! # #[cfg(feature = "runtime-tokio")]
//! # fn example() -> Result<(), sdam::ConfigError> {
//! let failures = Arc::new(Failures::default());
//! let topology = Topology::builder("mongodb://db-0.example.com/?replicaSet=rs0")?
//!     .sink(Arc::clone(&failures))
//!     .start(runtime::tokio()?)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Your runtime
//!
//! A [`Runtime`] consists of a [`Clock`], a [`Transport`] and a [`Spawner`], each of which can be
//! replaced. The following runtime runs each task on its own thread, and uses the timers and
//! sockets of this library:
//!
//! ```no_run
//! use std::{sync::Arc, thread};
//!
//! use sdam::{Runtime, Spawner, Topology, runtime::{self, Task}};
//!
//! #[derive(Debug)]
//! struct Threads;
//!
//! impl Spawner for Threads {
//!     fn spawn(&self, task: Task) {
//!         // Without a thread, the task is dropped.
//!         let _ = thread::Builder::new().spawn(|| futures::executor::block_on(task));
//!     }
//! }
//!
//! # #[cfg(feature = "runtime-smol")]
//! # fn example() -> Result<(), sdam::ConfigError> {
//! let runtime = Runtime::new(runtime::smol().backend, Arc::new(Threads));
//! let topology = Topology::builder("mongodb://db-0.example.com/?replicaSet=rs0")?
//!     .start(runtime)?;
//! # Ok(())
//! # }
//! ```
//!
//! For sockets of your own, implement [`Dial`](sdam_transport::dial::Dial), a trait with two
//! methods. The suites of `sdam-testkit` check runtimes and pools.
//!
//! # What is where
//!
//! | to | names |
//! | --- | --- |
//! | start, stop and configure | [`Topology`], [`TopologyBuilder`], [`Options`], [`ConfigError`], [`resolve`], [`WeakTopology`]; without tasks [`ScanTopology`] and its [`ScanConnection`], `BlockingTopology`; [`options`] |
//! | choose a server | [`Criteria`], [`ReadPreference`], [`ReadMode`], [`TagSet`], [`Selector`], [`SelectedServer`], [`SelectionError`]; [`select`] |
//! | see the deployment | [`Snapshot`], [`ServerState`], [`ServerDescription`], [`ServerType`], [`TopologyDescription`], [`TopologyType`], [`ServerAddress`]; [`snapshot`] |
//! | have a pool | [`PoolFactory`], [`PoolHandle`], [`PoolContext`], [`PoolClear`], [`Established`], [`Reporter`], [`Authenticator`], [`Error`], [`ErrorKind`]; [`pool`], [`error`] |
//! | receive events | [`EventSink`], [`Event`], [`EventKind`], [`Interest`]; [`events`] |
//! | have a runtime | [`Runtime`], [`Clock`], [`Transport`], [`Connection`], [`Spawner`], [`Resolver`], [`BoxFuture`], [`async_trait`]; [`runtime`] |
//! | run commands | `client::Client` |
//!
//! # Guide
//!
//! The repository's `docs/guide` has pages for applications, for authors of pools, drivers,
//! runtimes, sinks and exporters, and for tests with a simulated deployment. Its listings are
//! compiled.
//!
//! # Where each specification lives
//!
//! | specification | code |
//! | --- | --- |
//! | SDAM | [`sdam_core::deployment`], [`sdam_core::topology`], [`sdam_core::server`] |
//! | Server Monitoring | [`sdam_core::monitor`], [`sdam_core::rtt`] |
//! | SDAM: "Error handling", and the part of CMAP that belongs to it | [`sdam_core::report`], [`sdam_core::pool`], [`sdam_transport::pool`] |
//! | SDAM Logging and Monitoring | [`sdam_core::event`], [`sdam_events`] |
//! | Server Selection, Max Staleness | [`sdam_select`], [`sdam_core::read_preference`] |
//! | Handshake | [`sdam_core::hello`], [`sdam_transport::handshake`] |
//! | OP_MSG (OP_COMPRESSED is refused) | [`sdam_transport::wire`] |
//! | Initial DNS Seedlist Discovery, Polling SRV Records | [`resolve`], [`sdam_core::srv`] |
//! | Connection String, URI Options | [`sdam_core::uri`], [`sdam_core::options`] |
//! | Load Balancers | [`pool::ServiceConnection`], [`sdam_core::deployment`] |
//!
//! # Features
//!
//! Features are additive. `srv` and `tls` also add a resolver and a TLS library to the runtimes
//! that the functions of [`runtime`] return.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `runtime-tokio` (default) | `runtime::tokio`, `runtime::tokio_from_handle` |
//! | `runtime-smol` | `runtime::smol`, `runtime::smol_on` |
//! | `runtime-async-std` | `runtime::async_std`, for programs that still run on it |
//! | `blocking` | `BlockingTopology`, `runtime::blocking`: single-threaded mode on the system's sockets |
//! | `sim` | `sim`: simulated deployments |
//! | `pool` | a connection pool, in `pool`; `TopologyBuilder::authenticate`, which also works with a pool of your own |
//! | `client` | `client`: a client that runs commands, with retries |
//! | `srv` | `dns`: look-ups of `mongodb+srv` connection strings, for the runtimes from all functions of [`runtime`] |
//! | `tls` | `tls`: TLS by rustls, for the runtimes from all functions of [`runtime`] |
//! | `metrics` | `events::metrics`: metrics, for the exporter of your choice |
//! | `tracing` | `events::trace`: log messages, for the subscriber of your choice |
//! | `record` | `events::record`, `events::replay`: recordings of a topology, and their replay in the state machine |
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "client")]
pub mod client;
mod common;
mod engine;
#[cfg(all(test, sdam_loom))]
mod models;
mod monitor;
pub mod runtime;
pub mod select;
mod single_threaded;
mod srv;
mod sync;
mod topology;

#[doc(inline)]
pub use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind},
    event::{Event, EventKind},
    options::{ConfigError, Options},
    pool::PoolClear,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};
#[doc(inline)]
pub use sdam_events::sink::{EventSink, Interest};
#[doc(inline)]
pub use sdam_select::{candidate::Selector, criteria::Criteria};
pub use sdam_transport::{BoxFuture, async_trait};
#[doc(inline)]
pub use sdam_transport::{
    clock::Clock,
    connect::{Connection, Transport},
    pool::{Authenticator, Established, PoolContext, PoolFactory, PoolHandle, Reporter},
    resolve::Resolver,
    runtime::Runtime,
    spawn::Spawner,
};

#[cfg(feature = "blocking")]
pub use self::single_threaded::BlockingTopology;
pub use self::{
    engine::snapshot::{ServerState, Snapshot},
    select::{error::SelectionError, selected::SelectedServer},
    single_threaded::{ScanConnection, ScanTopology},
    srv::resolve,
    topology::{Topology, TopologyBuilder, WeakTopology},
};

/// Look-ups of SRV and TXT records.
#[cfg(feature = "srv")]
pub use sdam_dns as dns;
#[cfg(feature = "sim")]
pub use sdam_sim as sim;
/// TLS by rustls.
#[cfg(feature = "tls")]
pub use sdam_tls as tls;

pub mod error {
    //! The parts of an [`Error`](crate::Error) and of its report to a topology.
    //!
    //! Three types of errors exist: [`ConfigError`](crate::ConfigError) for an option that is
    //! wrong, [`SelectionError`](crate::SelectionError) for a selection without a server, and
    //! [`Error`](crate::Error) for everything that fails between this program and a server.

    pub use sdam_core::{
        error::{ErrorOutcome, Stage},
        report::ErrorReport,
    };
}

pub mod options {
    //! The types of the fields of [`Options`](crate::Options), and of other arguments of a builder.

    pub use sdam_core::options::{
        Acknowledgment, Credential, Detector, ProxyOptions, SelectionStrategy, ServerApi,
        ServerMonitoringMode, TlsOptions, Warning,
    };
    pub use sdam_transport::{
        handshake::{ClientMetadata, DriverInfo},
        layers::{AddressTable, HostTranslation},
    };
}

pub mod snapshot {
    //! The parts of a [`Snapshot`](crate::Snapshot), and a watch that waits for the next one.

    pub use sdam_core::{
        hello::HelloFields,
        ids::{ObjectId, ServerId},
        server::WireVersions,
    };

    pub use crate::{
        engine::{
            server::{ServerFailure, ServerFailures},
            snapshot::SnapshotGuard,
        },
        topology::TopologyWatch,
    };
}

pub mod events {
    //! The parts of events, combinators of sinks, and the library's own sinks.
    //!
    //! An [`EventSink`] receives the events of a topology, of its pools and of its clients, in
    //! order. A function can be a sink, too:
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
    //! [`TopologyBuilder::sink`](crate::TopologyBuilder::sink) adds a sink. [`EventKind`] lists all
    //! events. Other sinks are built in: logs ([`log`], [`trace`]), [`metrics`], the [`history`] of
    //! servers, a [`channel`], [`facts`] about outages, recordings ([`record`]) and their
    //! [`replay`].
    //!
    //! [`EventSink`]: crate::EventSink
    //! [`EventKind`]: crate::EventKind

    pub use sdam_core::event::{
        CheckOutFailure, CommandInfo, ConnectionClosedReason, ConnectionId, EventName,
        EventPublisher,
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
}

pub mod pool {
    //! Types for connections and pools, and the library's own pool.
    //!
    //! # A pool of your own
    //!
    //! A [`PoolFactory`](crate::PoolFactory) creates the pool of each server. The topology marks it
    //! ready and clears it ([`PoolHandle`](crate::PoolHandle)), and every selection returns a typed
    //! reference to it. [`PoolContext::establish`](crate::PoolContext::establish) opens
    //! connections: it connects, exchanges hello, and reports the reply or the error to the
    //! topology.
    //!
    //! # The pool of this crate
    //!
    //! With the feature `pool`, `Pools` is a factory of pools that implement CMAP on every runtime.
    //!
    //! # Authentication
    //!
    //! `TopologyBuilder::authenticate` (feature `pool`) authenticates the connections of every pool
    //! as the options say. For a mechanism of your own, implement
    //! [`Authenticator`](crate::Authenticator) and [`Conversation`].

    pub use sdam_core::{ids::Generation, pool::PoolOptions};
    #[cfg(feature = "pool")]
    pub use sdam_pool::{Pin, Pool, PoolStats, PooledConnection, Pools};
    pub use sdam_transport::pool::{
        AuthStep, CommandReply, Conversation, NoPools, ServiceConnection,
    };
}
