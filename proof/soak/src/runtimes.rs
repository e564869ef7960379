//! The runtimes of the clients.

use std::io;
use std::sync::Arc;

use sdam::Runtime;
use sdam::dns::DnsResolver;
use sdam_live::Dns;

use crate::process::Tasks;

/// One of each runtime. All look up SRV records at one name server, and count their tasks.
pub(crate) struct Runtimes {
    all: [Runtime; 3],
    /// Keeps the runtime alive.
    _tokio: tokio::runtime::Runtime,
}

impl Runtimes {
    pub(crate) fn start(dns: &Dns, tasks: &Tasks) -> io::Result<Self> {
        let mut tokio = tokio::runtime::Builder::new_multi_thread();
        let tokio = tokio.worker_threads(2).enable_all().build()?;
        let handle = tokio.handle().clone();
        let of_tokio = sdam::runtime::tokio_from_handle(handle).map_err(io::Error::other)?;
        let resolver = Arc::new(DnsResolver::with_servers([dns.address()]));
        let all = [of_tokio, sdam::runtime::smol(), sdam::runtime::async_std()];
        let all = all.map(|mut runtime| {
            runtime.backend = runtime.backend.with_resolver(resolver.clone());
            tasks.of(runtime)
        });
        Ok(Self { all, _tokio: tokio })
    }

    /// Returns the runtime of a client of the deployment with the number `deployment`, which is the
    /// `nth` client there. Three clients of a deployment have three runtimes.
    pub(crate) fn of(&self, deployment: usize, nth: usize) -> &Runtime {
        &self.all[(deployment + nth) % self.all.len()]
    }
}
