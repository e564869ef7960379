//! The runtime and server version of the live tests.

use std::sync::Arc;

use sdam::Runtime;
use sdam_live::{MemberSpec, Mongod, ReplicaSet, Version, or_skip};
use sdam_tls::Rustls;

/// A runtime and the value that keeps it running.
pub(crate) struct Host {
    pub(crate) runtime: Runtime,
    _tokio: Option<tokio::runtime::Runtime>,
}

impl Host {
    /// Starts the runtime named by `SDAM_LIVE_RUNTIME`, or tokio.
    pub(crate) fn start() -> Self {
        let name = std::env::var("SDAM_LIVE_RUNTIME").unwrap_or_else(|_| "tokio".to_owned());
        match name.as_str() {
            "tokio" => {
                let tokio = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .unwrap();
                let runtime = sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap();
                Self { runtime, _tokio: Some(tokio) }
            }
            // The timers, sockets and executors of these runtimes are global to the process.
            "smol" => Self::of_process(sdam_runtime_smol::runtime()),
            "async-std" => Self::of_process(sdam_runtime_async_std::runtime()),
            other => panic!("SDAM_LIVE_RUNTIME={other}: one of tokio, smol, async-std"),
        }
    }

    /// Adds TLS, implemented by the given provider.
    pub(crate) fn with_tls(mut self, provider: Rustls) -> Self {
        self.runtime.backend.tls = Some(Arc::new(provider));
        self
    }

    fn of_process(runtime: Runtime) -> Self {
        Self { runtime, _tokio: None }
    }
}

/// Starts a replica set of three members that elects quickly; `None` if no server is available.
pub(crate) fn replica_set() -> Option<ReplicaSet> {
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    or_skip(ReplicaSet::start(version(), &members)).unwrap()
}

/// Starts one server. Returns `None` if no server is available.
pub(crate) fn standalone() -> Option<Mongod> {
    or_skip(Mongod::start(version())).unwrap()
}

/// Returns the version named by `SDAM_LIVE_VERSION`; `None` for any version.
pub(crate) fn version() -> Option<Version> {
    std::env::var("SDAM_LIVE_VERSION").ok().map(|version| version.parse().unwrap())
}
