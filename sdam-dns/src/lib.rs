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

mod query;

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use async_trait::async_trait;
use futures::channel::oneshot;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use sdam_core::srv::SrvRecords;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
};
use sdam_transport::{error, resolve::Resolver};

use self::query::Query;

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
