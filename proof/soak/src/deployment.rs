//! The deployments: what they consist of, and how clients find them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sdam::{AddressTable, ServerAddress};
use sdam_live::{
    Certificates, Dns, Error, MemberSpec, Mongod, Record, RecordType, ReplicaSet, ServerTls,
    Version,
};

use crate::schedule::Kind;

/// Long enough that servers on a busy machine do not lose their primary without a fault.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Servers log no connections, because there are many in 12 hours.
const QUIET: &str = "--quiet";

/// The domain of all names in SRV records. The servers' certificates are valid for it.
const DOMAIN: &str = "sdam.example";

/// The options of all clients.
const OPTIONS: &str = "appName=soak&maxPoolSize=4&heartbeatFrequencyMS=2000&\
    connectTimeoutMS=5000&serverSelectionTimeoutMS=10000";

/// The maximum number of connections in a pool, as in the options.
pub(crate) const MAX_POOL_SIZE: usize = 4;

/// A running deployment.
pub(crate) struct Deployment {
    pub(crate) name: String,
    pub(crate) servers: Servers,
    pub(crate) certificates: Option<Arc<Certificates>>,
    /// The name server, if clients find the deployment by its SRV record.
    pub(crate) dns: Option<Arc<Dns>>,
    /// The time since which there is no fault; `None` from a fault until clients have recovered.
    calm_since: Mutex<Option<Instant>>,
}

pub(crate) enum Servers {
    Standalone(Box<Mongod>),
    Set(ReplicaSet),
}

impl Deployment {
    /// Starts the deployment with the given index, which decides its shape: a standalone, or a set
    /// of one or three members, of some version, with or without TLS and an SRV record.
    pub(crate) fn start(index: usize, dns: &Arc<Dns>) -> Result<Self, Error> {
        let members = [0, 1, 3, 0, 3][index % 5];
        let version = Version::FETCHABLE[index / 2 % 4];
        let certificates = (index % 2 == 1).then(Certificates::create).transpose()?.map(Arc::new);
        let tls = certificates.as_ref().map(ServerTls::new);
        let servers = if members == 0 {
            Servers::Standalone(Box::new(match &tls {
                Some(tls) => Mongod::start_tls(version, tls, &[QUIET])?,
                None => Mongod::start_with(version, &[QUIET])?,
            }))
        } else {
            let builder =
                ReplicaSet::builder(version).argument(QUIET).election_timeout(ELECTION_TIMEOUT);
            let builder = if let Some(tls) = tls { builder.tls(tls) } else { builder };
            Servers::Set(builder.start(&vec![MemberSpec::new(); members])?)
        };
        let deployment = Self {
            name: format!("d{index}"),
            servers,
            certificates,
            dns: (index % 5 >= 3).then(|| Arc::clone(dns)),
            calm_since: Mutex::new(Some(Instant::now())),
        };
        deployment.list_hosts(&deployment.hosts())?;
        Ok(deployment)
    }

    pub(crate) fn members(&self) -> Vec<&Mongod> {
        match &self.servers {
            Servers::Standalone(mongod) => vec![mongod],
            Servers::Set(set) => set.members().collect(),
        }
    }

    /// Returns how clients find their way after a fault: only sets of several members elect.
    pub(crate) fn kind(&self) -> &'static str {
        if self.members().len() > 1 { "sets" } else { "single servers" }
    }

    /// Returns the kinds of faults that the deployment can have.
    pub(crate) fn faults(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::Kill, Kind::Freeze, Kind::FullDisk];
        kinds.extend(
            (self.members().len() > 1)
                .then_some([Kind::StepDown, Kind::Reconfigure])
                .iter()
                .flatten(),
        );
        kinds.extend(self.certificates.as_ref().map(|_| Kind::Certificates));
        kinds.extend(self.dns.as_ref().map(|_| Kind::Dns));
        kinds
    }

    /// Returns the connection string for clients.
    pub(crate) fn uri(&self) -> String {
        let tls = self.certificates.as_ref();
        let tls = tls.map_or("tls=false".to_owned(), |certificates| certificates.options());
        match &self.servers {
            _ if self.dns.is_some() => format!("mongodb+srv://{}/?{OPTIONS}&{tls}", self.domain()),
            Servers::Standalone(mongod) => format!("mongodb://{}/?{OPTIONS}&{tls}", mongod.host()),
            Servers::Set(set) => format!("{}&{OPTIONS}&{tls}", set.uri()),
        }
    }

    /// Returns where clients find the hosts of the SRV record: on loopback.
    pub(crate) fn table(&self) -> AddressTable {
        let place = |(name, port): (String, u16)| {
            (ServerAddress::new(&name, port), ServerAddress::new("127.0.0.1", port))
        };
        self.hosts().into_iter().chain([self.absent_host()]).map(place).collect()
    }

    /// Returns the hosts and ports for the SRV record.
    pub(crate) fn hosts(&self) -> Vec<(String, u16)> {
        let host =
            |mongod: &&Mongod| (format!("{}-db.{DOMAIN}", self.name), mongod.address().port());
        self.members().iter().map(host).collect()
    }

    /// Returns a host where no server listens.
    pub(crate) fn absent_host(&self) -> (String, u16) {
        (format!("{}-gone.{DOMAIN}", self.name), 1)
    }

    /// Sets the hosts in the SRV record, if there is one. Without hosts, the record is removed.
    pub(crate) fn list_hosts(&self, hosts: &[(String, u16)]) -> Result<(), Error> {
        let Some(dns) = &self.dns else { return Ok(()) };
        let name = format!("_mongodb._tcp.{}", self.domain());
        if hosts.is_empty() {
            return dns.remove(&name, RecordType::Srv);
        }
        let mut records: Vec<_> =
            hosts.iter().map(|(host, port)| Record::srv(&name, host, *port)).collect();
        if let Servers::Set(set) = &self.servers {
            let option = format!("replicaSet={}", set.name());
            records.push(Record::txt(&self.domain(), [option.as_str()]));
        }
        dns.set(records)
    }

    fn domain(&self) -> String {
        format!("{}.{DOMAIN}", self.name)
    }

    /// Waits until every server works, by its own words.
    pub(crate) fn wait_until_settled(&self) -> Result<(), Error> {
        match &self.servers {
            Servers::Standalone(mongod) => mongod.hello().map(drop),
            Servers::Set(set) => set.wait_until_settled(),
        }
    }

    /// Records that a fault begins, or that clients have recovered from it.
    pub(crate) fn set_calm(&self, is_calm: bool) {
        let mut since = self.calm_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = is_calm.then(Instant::now);
    }

    /// Returns whether there was no fault since the given time.
    pub(crate) fn is_calm_since(&self, time: Instant) -> bool {
        let since = *self.calm_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since <= time)
    }
}
