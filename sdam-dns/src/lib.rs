//! Look-ups of SRV and TXT records for sdam, on every runtime and without one.
//!
//! [`DnsResolver`] asks the name servers of the system, or given ones, by
//! [hickory](https://docs.rs/hickory-resolver): over UDP, and over TCP if an answer is too large for
//! that. Each look-up has its own short-lived thread, so it needs no runtime of its caller, and no
//! thread exists between two look-ups, which are at least a minute apart while all is well.
//!
//! Nothing is cached here: each look-up is answered by a name server, and the configuration of the
//! system is read anew, because it changes when a machine joins another network.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use sdam_dns::DnsResolver;
//! use sdam_transport::Io;
//!
//! fn with_srv(io: Io) -> Io {
//!     io.with_resolver(Arc::new(DnsResolver::system()))
//! }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

mod query;

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use async_trait::async_trait;
use futures::channel::oneshot;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use sdam_core::{address::ServerAddress, error::Stage};
use sdam_transport::{Resolver, SrvRecords, TransportError};

use self::query::Query;

/// Looks up SRV and TXT records at name servers.
///
/// Cloning is cheap.
///
/// # Cancel safety
///
/// A look-up ends at once when its future is dropped, and so does its thread.
#[derive(Clone, Debug)]
pub struct DnsResolver {
    /// The name servers to ask; `None`: the name servers of the system.
    servers: Option<Arc<[SocketAddr]>>,
    blocks: bool,
}

impl DnsResolver {
    /// Creates a resolver that asks the name servers of the system: those of `/etc/resolv.conf`, or
    /// of the settings of Windows and macOS.
    pub fn system() -> Self {
        Self {
            servers: None,
            blocks: false,
        }
    }

    /// Creates a resolver that asks these name servers.
    pub fn with_servers(servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            servers: Some(servers.into_iter().collect()),
            blocks: false,
        }
    }

    /// Makes the futures of look-ups block their thread, as single-threaded mode on blocking sockets
    /// needs, whose timers block, too.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocks = true;
        self
    }

    /// Returns the records of `name` in the order of the answer; none if there are none.
    async fn look_up(
        &self,
        name: &str,
        record_type: RecordType,
        timeout: Option<Duration>,
    ) -> Result<Vec<Record>, TransportError> {
        let query = Query {
            servers: self.servers.clone(),
            // A full name: the search list of the system does not apply.
            name: format!("{}.", name.trim_end_matches('.')),
            record_type,
            timeout,
        };
        let (mut sender, receiver) = oneshot::channel();
        let thread = thread::Builder::new().name("sdam-dns".into());
        let thread = thread.spawn(move || {
            if let Some(outcome) = query.run(sender.cancellation()) {
                // The future may have been dropped meanwhile.
                let _ = sender.send(outcome);
            }
        });
        let thread = thread.map_err(|error| {
            TransportError::from_io(Stage::Dns, "a thread could not be started", error)
        })?;
        if self.blocks {
            // A panic of the thread is seen below.
            let _ = thread.join();
        }
        receiver.await.unwrap_or_else(|_| {
            let message = "the thread of the look-up panicked";
            Err(TransportError::network(Stage::Dns, message))
        })
    }
}

#[async_trait]
impl Resolver for DnsResolver {
    async fn lookup_srv(
        &self,
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<SrvRecords, TransportError> {
        let records = self.look_up(name, RecordType::SRV, timeout).await?;
        let host = |record: &Record| match &record.data {
            RData::SRV(srv) => {
                // Certificates name the ASCII form, and so does the system's look-up of addresses.
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
    ) -> Result<Vec<Box<str>>, TransportError> {
        let records = self.look_up(name, RecordType::TXT, timeout).await?;
        let text = |record: &Record| match &record.data {
            RData::TXT(txt) => Some(String::from_utf8_lossy(&txt.txt_data.concat()).into()),
            _ => None,
        };
        Ok(records.iter().filter_map(text).collect())
    }
}
