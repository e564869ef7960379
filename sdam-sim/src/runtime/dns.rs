//! The simulated DNS: records for seed lists, addresses of hosts, and faults in look-ups.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    srv::SrvRecords,
    time::Instant,
};
use sdam_transport::{async_trait, resolve::Resolver};

use super::{Shared, executor::Sleep};

/// A fault in DNS look-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnsFault {
    /// The answer takes this long. Without this fault, answers arrive immediately.
    Slow(Duration),
    /// The name does not exist (NXDOMAIN).
    NoSuchName,
    /// The name server replies that it failed (SERVFAIL).
    ServerFailure,
    /// There is no answer.
    Silence,
    /// The name server alternates between failing and answering. Each phase lasts this long.
    Flapping(Duration),
}

/// Controls the DNS of a simulated world: its records and its faults.
///
/// The resolver of [`Sim::runtime`](super::Sim::runtime) finds the SRV and TXT records set here.
/// Every host has an address, even without a record. Faults apply to look-ups of every kind.
///
/// ```
/// use std::time::Duration;
///
/// use sdam_core::address::ServerAddress;
/// use sdam_sim::{Blueprint, runtime::{DnsFault, Sim}};
///
/// let mongoses = ["a.sim.test", "b.sim.test"].map(|host| ServerAddress::new(host, 27017));
/// let sim = Sim::new(42, &Blueprint::sharded(2).at(mongoses.clone()));
/// let uri = sim.dns().publish("cluster.sim.test", Duration::from_secs(60));
/// assert_eq!(uri, "mongodb+srv://cluster.sim.test/?tls=false");
///
/// let resolver = sim.runtime().backend.resolver.unwrap();
/// let name = "_mongodb._tcp.cluster.sim.test";
/// let found = sim.block_on(resolver.lookup_srv(name, None)).unwrap();
/// assert_eq!(found.hosts, mongoses);
///
/// sim.dns().set_srv(name, Duration::from_secs(60), mongoses[..1].to_vec());
/// let found = sim.block_on(resolver.lookup_srv(name, None)).unwrap();
/// assert_eq!(found.hosts, mongoses[..1]);
/// assert_eq!(sim.dns().hosts(name), mongoses[..1]);
///
/// sim.dns().set_fault(name, Some(DnsFault::ServerFailure));
/// assert!(sim.block_on(resolver.lookup_srv(name, None)).is_err());
/// assert_eq!(sim.dns().lookups(name), 3);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dns<'s>(pub(super) &'s Shared);

impl Dns<'_> {
    /// Sets the SRV records of `name`, such as `_mongodb._tcp.cluster.sim.test`, to one record per
    /// host with this TTL. If there are no hosts, the name has no SRV records.
    pub fn set_srv(
        &self,
        name: &str,
        ttl: Duration,
        hosts: impl IntoIterator<Item = ServerAddress>,
    ) {
        let records = SrvRecords::new(hosts.into_iter().collect(), ttl);
        self.0.state().network.dns.srv.insert(key(name), records);
    }

    /// Returns the hosts in the SRV records of `name`.
    pub fn hosts(&self, name: &str) -> Vec<ServerAddress> {
        let state = self.0.state();
        let records = state.network.dns.srv.get(&key(name));
        records.map_or_else(Vec::new, |records| records.hosts.clone())
    }

    /// Sets the TXT records of `name`, such as `cluster.sim.test`. The strings of each record are
    /// joined. If `records` is empty, the name has no TXT records.
    pub fn set_txt<'t>(&self, name: &str, records: impl IntoIterator<Item = &'t str>) {
        let records = records.into_iter().map(Into::into).collect();
        self.0.state().network.dns.txt.insert(key(name), records);
    }

    /// Publishes the deployment as `host`: an SRV record for each server in the deployment's
    /// connection string, and a TXT record with its options, if any. Returns an SRV connection
    /// string, such as `mongodb+srv://cluster.sim.test/?tls=false`. The string enables TLS if the
    /// members [require](super::TlsServers::require) TLS.
    ///
    /// Clients accept only servers in the parent domain of `host`, such as `a.sim.test`.
    pub fn publish(&self, host: &str, ttl: Duration) -> String {
        let (seeds, options, encrypted) = {
            let state = self.0.state();
            let seeds: Vec<_> = state.deployment.seeds().into_iter().cloned().collect();
            let encrypted = state.network.tls.is_required();
            (seeds, state.deployment.options(), encrypted)
        };
        self.set_srv(&format!("_mongodb._tcp.{host}"), ttl, seeds);
        // A TXT record must not request a direct connection.
        let options = options.filter(|options| !options.starts_with("directConnection"));
        self.set_txt(host, options.as_deref());
        // TLS is the default for SRV connection strings.
        let options = if encrypted { "" } else { "?tls=false" };
        format!("mongodb+srv://{host}/{options}")
    }

    /// Sets the fault in all look-ups of `name`; `None` ends it.
    pub fn set_fault(&self, name: &str, fault: Option<DnsFault>) {
        self.set_any_fault(Some(name), fault);
    }

    /// Sets the fault in look-ups of all names that do not have their own fault; `None` ends it.
    pub fn set_fault_of_all(&self, fault: Option<DnsFault>) {
        self.set_any_fault(None, fault);
    }

    fn set_any_fault(self, name: Option<&str>, fault: Option<DnsFault>) {
        let mut state = self.0.state();
        let (since, faults) = (state.now(), &mut state.network.dns.faults);
        match fault {
            Some(fault) => faults.insert(name.map(key), (since, fault)),
            None => faults.remove(&name.map(key)),
        };
    }

    /// Returns the number of look-ups of `name` so far.
    pub fn lookups(&self, name: &str) -> u64 {
        let state = self.0.state();
        state.network.dns.lookups.get(&key(name)).copied().unwrap_or(0)
    }
}

/// Returns the key of `name` in the tables of records and faults.
fn key(name: &str) -> Box<str> {
    name.trim_end_matches('.').to_ascii_lowercase().into()
}

#[derive(Debug, Default)]
pub(super) struct DnsState {
    srv: BTreeMap<Box<str>, SrvRecords>,
    txt: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// The faults with their start times, keyed by name. The key `None` is for all names without a
    /// fault of their own.
    faults: BTreeMap<Option<Box<str>>, (Instant, DnsFault)>,
    lookups: BTreeMap<Box<str>, u64>,
}

impl DnsState {
    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.faults.clear();
    }

    /// Returns the fault that affects `name` at `now`. A flapping name server has the fault
    /// `ServerFailure` while it fails, and no fault otherwise.
    fn fault(&self, now: Instant, name: Box<str>) -> Option<DnsFault> {
        let own = self.faults.get(&Some(name));
        let (since, fault) = own.or_else(|| self.faults.get(&None))?;
        match fault {
            DnsFault::Flapping(period) => {
                let turn = now.since(*since).as_nanos() / period.as_nanos().max(1);
                turn.is_multiple_of(2).then_some(DnsFault::ServerFailure)
            }
            fault => Some(*fault),
        }
    }
}

/// Waits for the answer to a look-up of `name`. If there is none, waits forever. The error is a
/// negative answer from the name server.
pub(super) async fn look_up(shared: &Arc<Shared>, name: &str) -> Result<(), Refusal> {
    let (now, fault) = {
        let mut state = shared.state();
        *state.network.dns.lookups.entry(key(name)).or_default() += 1;
        let now = state.now();
        (now, state.network.dns.fault(now, key(name)))
    };
    match fault {
        None => Ok(()),
        Some(DnsFault::Slow(latency)) => {
            Sleep::new(Arc::clone(shared), now + latency).await;
            Ok(())
        }
        Some(DnsFault::NoSuchName) => Err(Refusal::NoSuchName),
        Some(DnsFault::Silence) => std::future::pending().await,
        Some(DnsFault::ServerFailure | DnsFault::Flapping(_)) => Err(Refusal::ServerFailure),
    }
}

/// A negative answer from a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NoSuchName,
    ServerFailure,
}

impl Refusal {
    /// Returns the error that this answer causes in the look-up of a host.
    pub(super) fn of_host(self, host: &str) -> io::Error {
        match self {
            Self::NoSuchName => {
                io::Error::new(io::ErrorKind::NotFound, format!("host {host} has no address"))
            }
            Self::ServerFailure => io::Error::other(format!("the name server failed for {host}")),
        }
    }
}

/// The resolver that uses the simulated DNS.
#[derive(Debug)]
pub(super) struct SimResolver(pub(super) Arc<Shared>);

impl SimResolver {
    /// Returns the records of `name` that `find` selects.
    async fn records<T>(
        &self,
        name: &str,
        find: impl Fn(&DnsState, &str) -> Option<T> + Send,
    ) -> Result<Option<T>, Error> {
        match look_up(&self.0, name).await {
            Ok(()) => Ok(find(&self.0.state().network.dns, &key(name))),
            Err(Refusal::NoSuchName) => Ok(None),
            Err(Refusal::ServerFailure) => {
                let message = format!("the name server failed for {name} (SERVFAIL)");
                Err(Error::network(Stage::Dns, message))
            }
        }
    }
}

#[async_trait]
impl Resolver for SimResolver {
    async fn lookup_srv(&self, name: &str, _: Option<Duration>) -> Result<SrvRecords, Error> {
        let found = self.records(name, |dns, key| dns.srv.get(key).cloned());
        let none = SrvRecords::new(Vec::new(), Duration::ZERO);
        Ok(found.await?.unwrap_or(none))
    }

    async fn lookup_txt(&self, name: &str, _: Option<Duration>) -> Result<Vec<Box<str>>, Error> {
        let found = self.records(name, |dns, key| dns.txt.get(key).cloned());
        Ok(found.await?.unwrap_or_default())
    }
}
