//! SRV seed lists: the hosts of a record to use, and the time of the next look-up (Initial DNS
//! Seedlist Discovery, Polling SRV Records for mongos Discovery).

use alloc::{format, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    options::{ConfigError, Srv},
    rng::Rng,
    time::Instant,
    topology::TopologyDescription,
};

/// The minimum time between two successful look-ups (Polling SRV Records: "rescanSRVIntervalMS").
#[doc(alias = "rescanSRVIntervalMS")]
pub const MIN_RESCAN_INTERVAL: Duration = Duration::from_secs(60);

/// The answer to a look-up of SRV records. Priorities and weights are ignored (N-3, N-26).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrvRecords {
    /// The target and port of each record, without the root's trailing dot, in the order of the
    /// answer.
    pub hosts: Vec<ServerAddress>,
    /// The minimum time to live (TTL) of all records; zero if unknown.
    pub ttl: Duration,
}

impl SrvRecords {
    /// Creates an answer with these `hosts`, valid for `ttl`.
    pub fn new(hosts: Vec<ServerAddress>, ttl: Duration) -> Self {
        Self { hosts, ttl }
    }
}

impl Srv {
    /// Returns the seeds from the hosts of the initial look-up: all of them, or `srvMaxHosts`
    /// random ones (Initial DNS Seedlist Discovery: "Querying DNS").
    ///
    /// # Errors
    ///
    /// If there are no hosts, or one of them is not [allowed](Self::allows).
    pub fn seeds(
        &self,
        hosts: &[ServerAddress],
        rng: &mut Rng,
    ) -> Result<Vec<ServerAddress>, ConfigError> {
        let invalid = |value: &str, reason, remedy| {
            let option = format!("SRV record {}", self.query_name());
            Err(ConfigError::new(option, value, reason, remedy))
        };
        if hosts.is_empty() {
            let remedy = "create the record, or list the servers in a mongodb:// string";
            return invalid("", "there is none".into(), remedy);
        }
        if let Some(foreign) = hosts.iter().find(|host| !self.allows(host)) {
            let remedy = "correct the record, or list the servers in a mongodb:// string";
            let reason = format!("the host is not in the domain {}", self.domain());
            return invalid(foreign.as_str(), reason, remedy);
        }
        Ok(TopologyDescription::default().sample_hosts(hosts, self.max_hosts(), rng))
    }
}

/// The polling of one topology's SRV record, while its type [is
/// polled](crate::topology::TopologyType::polls_srv).
///
/// # Contract
///
/// When [`next_rescan`](Self::next_rescan) is reached, the driver looks up the record
/// [`query_name`](Self::query_name), passes the outcome to [`rescanned`](Self::rescanned) and
/// executes the effects in order. It may abandon a look-up and start another one.
#[derive(Clone, Debug)]
pub struct SrvMachine {
    srv: Srv,
    query_name: Arc<str>,
    heartbeat_frequency: Duration,
    next_rescan: Instant,
}

/// An effect of an [`SrvMachine`].
#[derive(Clone, Debug, PartialEq)]
pub enum SrvEffect {
    /// Publish the event.
    Emit(EventKind),
    /// Apply these hosts to the topology, [sampled](TopologyDescription::sample_hosts) by
    /// `srvMaxHosts`. There is at least one.
    Hosts(Vec<ServerAddress>),
}

impl SrvMachine {
    /// Creates the polling of a topology that was opened at `now`, soon after the look-up of its
    /// seeds. `heartbeat_frequency` is the interval after a failure.
    pub fn new(srv: Srv, heartbeat_frequency: Duration, now: Instant) -> Self {
        Self {
            query_name: srv.query_name().into(),
            heartbeat_frequency,
            next_rescan: now + srv.ttl.max(MIN_RESCAN_INTERVAL),
            srv,
        }
    }

    /// Restarts the first interval at `now`.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.next_rescan = now + self.srv.ttl.max(MIN_RESCAN_INTERVAL);
    }

    /// Returns the name of the SRV records to look up.
    pub fn query_name(&self) -> &Arc<str> {
        &self.query_name
    }

    /// Returns the time at which the next look-up is due.
    pub fn next_rescan(&self) -> Instant {
        self.next_rescan
    }

    /// Handles the outcome of a look-up that ended at `now`, which is the start of the next
    /// interval.
    #[must_use = "the effects have to be carried out"]
    pub fn rescanned(
        &mut self,
        now: Instant,
        outcome: Result<SrvRecords, Error>,
    ) -> Vec<SrvEffect> {
        let mut effects = Vec::new();
        let verified = outcome.and_then(|records| {
            let SrvRecords { mut hosts, ttl } = records;
            let total = hosts.len();
            let foreign: Vec<_> = hosts
                .extract_if(.., |host| !self.srv.allows(host))
                .collect();
            if !foreign.is_empty() {
                effects.push(SrvEffect::Emit(EventKind::SrvHostsIgnored {
                    name: self.query_name.clone(),
                    domain: self.srv.domain().into(),
                    hosts: foreign.into(),
                }));
            }
            match (total, hosts.is_empty()) {
                (0, _) => Err(unusable("the name has no SRV record")),
                (_, true) => Err(unusable("no host of the SRV record is in its domain")),
                _ => Ok((hosts, ttl)),
            }
        });
        let interval = match verified {
            Ok((hosts, ttl)) => {
                effects.push(SrvEffect::Hosts(hosts));
                ttl.max(MIN_RESCAN_INTERVAL)
            }
            Err(error) => {
                effects.push(SrvEffect::Emit(EventKind::SrvLookupFailed {
                    name: self.query_name.clone(),
                    failure: error,
                    next: self.heartbeat_frequency,
                }));
                self.heartbeat_frequency
            }
        };
        self.next_rescan = now + interval;
        effects
    }
}

fn unusable(reason: &str) -> Error {
    Error::new(ErrorKind::Protocol, Stage::Dns, reason)
}
