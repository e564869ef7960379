//! Runs one look-up on its own thread.

use sdam_transport::error;
use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use futures::future::{self, Either};
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
        rr::{Name, Record, RecordType},
    },
    system_conf,
};
use sdam_core::error::{Error, Stage};
use tokio::{runtime, time};

/// The question, the name servers to query, and the time limit.
#[derive(Debug)]
pub(crate) struct Query {
    /// The name servers to query. `None` means the system's name servers.
    pub(crate) servers: Option<Arc<[SocketAddr]>>,
    /// The name to look up, with the final dot.
    pub(crate) name: String,
    pub(crate) record_type: RecordType,
    pub(crate) timeout: Option<Duration>,
}

impl Query {
    /// Runs the query on this thread until there is an answer; returns `None` if `cancelled` is
    /// ready first.
    pub(crate) fn run(
        &self,
        cancelled: impl Future<Output = ()>,
    ) -> Option<Result<Vec<Record>, Error>> {
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
