//! Looks up SRV and TXT records for sdam, with any runtime or without one.
//!
//! [`DnsResolver`] queries the system's name servers, or the given ones, using
//! [hickory](https://docs.rs/hickory-resolver). It queries over UDP, and repeats the query over TCP
//! if the answer is too large for UDP. Each look-up runs on its own short-lived thread, so no
//! runtime is needed, and no thread exists between look-ups, which are normally at least a minute
//! apart.
//!
//! Nothing is cached. Each look-up queries a name server and reads the system's configuration
//! again, because the configuration changes when the machine joins another network.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use sdam_dns::DnsResolver;
//! use sdam_transport::runtime::Backend;
//!
//! fn with_srv(mut backend: Backend) -> Backend {
//!     backend.resolver = Some(Arc::new(DnsResolver::system()));
//!     backend
//! }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

use std::{net::SocketAddr, pin::pin, sync::Arc, thread, time::Duration};

use async_trait::async_trait;
use futures::{
    channel::oneshot,
    future::{self, Either},
};
use hickory_resolver::{
    NameServerPool, PoolContext, TlsConfig,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{
        DnsError, NetError,
        runtime::TokioRuntimeProvider,
        xfer::{DnsHandle as _, FirstAnswer as _, RetryDnsHandle},
    },
    proto::{
        op::{DnsRequestOptions, DnsResponse, Query as DnsQuery},
        rr::{Name, RData, Record, RecordType},
    },
    system_conf,
};
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    srv::SrvRecords,
};
use sdam_transport::{error, resolve::Resolver};
use tokio::{runtime, time};

/// Looks up SRV and TXT records at name servers.
///
/// Cloning is cheap.
///
/// # Cancel safety
///
/// Dropping the future of a look-up immediately ends the look-up and its thread.
#[derive(Clone, Debug)]
pub struct DnsResolver {
    /// The name servers to query. `None` means the system's name servers.
    servers: Option<Arc<[SocketAddr]>>,
    blocks: bool,
}

impl DnsResolver {
    /// Creates a resolver that queries the name servers configured in `/etc/resolv.conf`, or in the
    /// settings of Windows or macOS.
    pub fn system() -> Self {
        Self { servers: None, blocks: false }
    }

    /// Creates a resolver that queries the given name servers.
    pub fn with_servers(servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { servers: Some(servers.into_iter().collect()), blocks: false }
    }

    /// Makes look-ups block the thread that polls them. Single-threaded mode on blocking sockets
    /// needs this, because its timers block as well.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocks = true;
        self
    }

    /// Returns the records of `name` in the order of the answer, or an empty list if there are
    /// none.
    async fn look_up(
        &self,
        name: &str,
        record_type: RecordType,
        timeout: Option<Duration>,
    ) -> Result<Vec<Record>, Error> {
        let query = Query {
            servers: self.servers.clone(),
            // The name is fully qualified, so the system's search list does not apply to it.
            name: format!("{}.", name.trim_end_matches('.')),
            record_type,
            timeout,
        };
        let (mut sender, receiver) = oneshot::channel();
        let thread = thread::Builder::new().name("sdam-dns".into());
        let thread = thread.spawn(move || {
            if let Some(outcome) = query.run(sender.cancellation()) {
                // Sending fails if the caller has dropped the future in the meantime.
                let _ = sender.send(outcome);
            }
        });
        let thread = thread
            .map_err(|error| error::from_io(Stage::Dns, "a thread could not be started", error))?;
        if self.blocks {
            // If the thread panicked, the missing result is detected below.
            let _ = thread.join();
        }
        receiver.await.unwrap_or_else(|_| {
            let message = "the thread of the look-up panicked";
            Err(Error::network(Stage::Dns, message))
        })
    }
}

#[async_trait]
impl Resolver for DnsResolver {
    async fn lookup_srv(&self, name: &str, timeout: Option<Duration>) -> Result<SrvRecords, Error> {
        let records = self.look_up(name, RecordType::SRV, timeout).await?;
        let host = |record: &Record| match &record.data {
            RData::SRV(srv) => {
                // The ASCII form is needed because certificates contain it and the system's address
                // look-up uses it.
                let target = srv.target.to_ascii();
                Some(ServerAddress::new(target.trim_end_matches('.'), srv.port))
            }
            _ => None,
        };
        let hosts = records.iter().filter_map(host).collect();
        let ttl = records.iter().map(|record| record.ttl).min();
        let ttl = Duration::from_secs(ttl.unwrap_or_default().into());
        Ok(SrvRecords::new(hosts, ttl))
    }

    async fn lookup_txt(
        &self,
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<Vec<Box<str>>, Error> {
        let records = self.look_up(name, RecordType::TXT, timeout).await?;
        let text = |record: &Record| match &record.data {
            RData::TXT(txt) => Some(String::from_utf8_lossy(&txt.txt_data.concat()).into()),
            _ => None,
        };
        Ok(records.iter().filter_map(text).collect())
    }
}

/// The question, the name servers to query, and the time limit.
#[derive(Debug)]
struct Query {
    /// The name servers to query. `None` means the system's name servers.
    servers: Option<Arc<[SocketAddr]>>,
    /// The name to look up, with the final dot.
    name: String,
    record_type: RecordType,
    timeout: Option<Duration>,
}

impl Query {
    /// Runs the query on this thread until there is an answer; returns `None` if `cancelled` is
    /// ready first.
    fn run(&self, cancelled: impl Future<Output = ()>) -> Option<Result<Vec<Record>, Error>> {
        let mut builder = runtime::Builder::new_current_thread();
        let runtime = match builder.enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let message = "the look-up could not be started";
                return Some(Err(error::from_io(Stage::Dns, message, error)));
            }
        };
        runtime.block_on(async {
            match future::select(pin!(cancelled), pin!(self.answer())).await {
                Either::Left(_) => None,
                Either::Right((outcome, _)) => Some(outcome),
            }
        })
    }

    async fn answer(&self) -> Result<Vec<Record>, Error> {
        let (config, options) = self.configuration()?;
        let servers = listed(&config);
        let answer = self.ask(config, options);
        let outcome = match self.timeout {
            None => answer.await,
            Some(timeout) => match time::timeout(timeout, answer).await {
                Ok(outcome) => outcome,
                Err(_) => Err(NetError::Timeout),
            },
        };
        match outcome {
            Ok(found) => Ok(found
                .answers
                .iter()
                .filter(|record| record.record_type() == self.record_type)
                .cloned()
                .collect()),
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(error) => Err(failed(&servers, error)),
        }
    }

    /// Queries the name servers directly, because hickory's `Resolver` would itself answer for
    /// `localhost` and other reserved names (RFC 6761), which may have SRV records.
    async fn ask(
        &self,
        config: ResolverConfig,
        options: ResolverOpts,
    ) -> Result<DnsResponse, NetError> {
        let query = DnsQuery::query(Name::from_utf8(&self.name)?, self.record_type);
        let mut request = DnsRequestOptions::default();
        request.recursion_desired = options.recursion_desired;
        request.use_edns = options.edns0;
        request.edns_payload_len = options.edns_payload_len;
        request.case_randomization = options.case_randomization;
        let attempts = options.attempts;
        let context = Arc::new(PoolContext::new(options, TlsConfig::new()?));
        let provider = TokioRuntimeProvider::default();
        let servers = NameServerPool::from_config(config.name_servers, context, provider);
        let responses = RetryDnsHandle::new(servers, attempts).lookup(query, request);
        Ok(DnsError::from_response(responses.first_answer().await?)?)
    }

    fn configuration(&self) -> Result<(ResolverConfig, ResolverOpts), Error> {
        let (config, mut options) = match &self.servers {
            Some(servers) => {
                let servers = servers.iter().copied().map(name_server).collect();
                let config = ResolverConfig::from_parts(None, Vec::new(), servers);
                (config, ResolverOpts::default())
            }
            None => system_conf::read_system_conf().map_err(|error| {
                let message = "the name servers of the system could not be read";
                Error::network(Stage::Dns, message).with_source(error)
            })?,
        };
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        // The timeout of each attempt is shortened, so that there is time to repeat lost queries.
        if let Some(timeout) = self.timeout {
            let tries = u32::try_from(options.attempts).unwrap_or(u32::MAX);
            options.timeout = options.timeout.min(timeout / tries.saturating_add(1));
        }
        Ok((config, options))
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}

fn failed(servers: &str, error: NetError) -> Error {
    match error {
        NetError::Timeout => {
            Error::timeout(Stage::Dns, format!("no answer from name server {servers}"))
        }
        error => {
            let message = format!("asking name server {servers} failed");
            Error::network(Stage::Dns, message).with_source(error)
        }
    }
}

/// Lists the name servers in a configuration. Error messages contain this list.
fn listed(config: &ResolverConfig) -> String {
    let servers = config.name_servers().iter().map(|server| {
        let port = server.connections.first().map_or(53, |first| first.port);
        SocketAddr::new(server.ip, port).to_string()
    });
    servers.collect::<Vec<_>>().join(", ")
}
