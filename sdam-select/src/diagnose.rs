//! Diagnoses: probable faults in a deployment or its configuration, with remedies.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    read_preference::ReadMode,
    server::{ServerDescription, ServerType},
    topology::{Departure, DepartureReason, Obstacle, TopologyDescription, TopologyType},
};

use crate::{
    criteria::Operation,
    explain::{Explanation, Rejection, Verdict},
};

#[cfg(test)]
mod tests;
mod text;

/// A probable fault, derived only from descriptions and their errors.
///
/// `{}` prints the problem in one sentence; [`remedy`](Self::remedy) returns the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Diagnosis {
    /// A server and the client have no wire version in common; the string contains both ranges.
    Incompatible(Arc<str>),
    /// A server was removed because it does not belong to the topology.
    Departed(Departure),
    /// Every server was removed from the topology.
    NoServers {
        /// The name that the members' replica set must have.
        set_name: Option<Box<str>>,
    },
    /// No server has answered yet, and none has failed.
    NotAnsweredYet,
    /// Attempts to connect to servers have gone unanswered for a second or longer, but not yet for
    /// `connectTimeoutMS`.
    NoAnswer {
        /// The servers.
        addresses: Vec<ServerAddress>,
        /// The time since the most recent of these attempts began.
        time: Duration,
        /// True if the addresses come from the replica set's own configuration.
        advertised: bool,
    },
    /// The members' replica set name differs from the configured one.
    WrongSetName {
        /// The server that reported the name.
        address: ServerAddress,
        /// The error, which contains both names.
        error: Error,
    },
    /// Host names cannot be resolved on this host.
    Unresolvable {
        /// The servers whose host names cannot be resolved.
        addresses: Vec<ServerAddress>,
        /// True if the addresses come from the replica set's own configuration.
        advertised: bool,
    },
    /// No server accepts connections.
    NothingReachable {
        /// The servers that do not accept connections.
        addresses: Vec<ServerAddress>,
        /// True if the attempts timed out, as behind a firewall; false if they were refused.
        timed_out: bool,
    },
    /// Some members do not accept connections, although others do.
    Unreachable {
        /// The members that do not accept connections.
        addresses: Vec<ServerAddress>,
        /// True if the addresses come from the replica set's own configuration.
        advertised: bool,
    },
    /// Connections through the proxy fail, or the proxy itself is unreachable.
    ProxyFailed {
        /// The servers with their errors, which name the proxy and the cause.
        failures: Vec<(ServerAddress, Error)>,
    },
    /// TLS could not be negotiated: the server does not use it, or a certificate is rejected.
    TlsFailed {
        /// The servers with their errors, which name the cause.
        failures: Vec<(ServerAddress, Error)>,
    },
    /// Servers accept connections but close them without answering, perhaps because they require
    /// TLS.
    TlsExpected {
        /// The servers that close connections.
        addresses: Vec<ServerAddress>,
    },
    /// Servers answer hello with something other than a MongoDB reply, so another service listens
    /// at their addresses.
    NotMongoDb {
        /// The servers with their errors, which describe the answers.
        failures: Vec<(ServerAddress, Error)>,
    },
    /// Servers answer hello with an error.
    HelloRefused {
        /// The servers with their errors.
        failures: Vec<(ServerAddress, Error)>,
    },
    /// A server rejects the credentials.
    AuthenticationFailed {
        /// The server that rejects the credentials.
        address: ServerAddress,
        /// The error that the server returned.
        error: Error,
    },
    /// A member's own address differs from the address to which the client connected.
    AddressMismatch {
        /// The address to which the client connected.
        address: ServerAddress,
        /// The member's own address, `me`.
        me: ServerAddress,
        /// The error from looking up or connecting to `me`; `None` if no attempt to do so was
        /// necessary.
        error: Option<Error>,
    },
    /// The members know a primary, but it cannot be reached from this host.
    PrimaryUnreachable {
        /// The primary.
        address: ServerAddress,
    },
    /// The servers that answer were started for a replica set but belong to none: the set was never
    /// initiated, or the servers were removed from it.
    NotInitiated {
        /// The servers without a configuration.
        addresses: Vec<ServerAddress>,
    },
    /// The members have no primary.
    NoPrimary {
        /// The number of members that were reached.
        reached: usize,
        /// The number of members.
        members: usize,
    },
    /// The topology is `Single`, so operations go to its only server, but servers of that server's
    /// type refuse writes, and perhaps reads as well.
    Refuses {
        /// The server that refuses the operation.
        address: ServerAddress,
        /// The server's type.
        server_type: ServerType,
    },
    /// Servers are available, but none has the requested tags.
    NoMatchingTags,
    /// Secondaries are available, but all exceed the staleness limit.
    AllStale,
    /// Secondaries are available, but their staleness is unknown, so the staleness limit excludes
    /// them.
    StalenessUnknown,
    /// Servers are suitable, but a server selector dropped them all.
    DroppedBySelector,
}

/// Returns the probable faults, most fundamental first.
///
/// `explanation` comes from a selection on the same `topology`. There can be diagnoses even if the
/// selection found servers: an unresolvable member is a fault even before it is needed.
pub fn diagnose(topology: &TopologyDescription, explanation: &Explanation) -> Vec<Diagnosis> {
    let evidence = Evidence::new(topology);
    let mut found = Vec::new();
    let incompatible = topology.compatibility_error();
    found.extend(incompatible.map(|error| Diagnosis::Incompatible(error.into())));
    let (mistakes, others) = (
        || evidence.departures(DepartureReason::is_mistake),
        || evidence.departures(|reason| !reason.is_mistake()),
    );
    if !evidence.any_available {
        found.extend(mistakes());
    }
    found.extend(evidence.names_that_differ());
    if !evidence.any_available {
        found.extend(others());
    }
    evidence.about_no_answers(&mut found, explanation);
    evidence.about_connections(&mut found);
    evidence.about_names(&mut found);
    found.extend(evidence.not_initiated());
    if explanation.eligible().next().is_none() {
        if wants_primary(&explanation.operation) {
            found.extend(evidence.missing_primary());
        }
        found.extend(exclusion(explanation));
    }
    let refusing = explanation
        .eligible()
        .filter(|server| server.refuses && server.server_type != ServerType::RsGhost);
    found.extend(refusing.map(|server| Diagnosis::Refuses {
        address: server.address.clone(),
        server_type: server.server_type,
    }));
    if evidence.any_available {
        found.extend(mistakes());
    }
    found
}

/// The evidence for diagnoses: a topology, and queries that several diagnoses share.
struct Evidence<'t> {
    topology: &'t TopologyDescription,
    any_available: bool,
}

impl<'t> Evidence<'t> {
    fn new(topology: &'t TopologyDescription) -> Self {
        let mut servers = topology.servers().iter();
        Self { topology, any_available: servers.any(|server| server.server_type.is_available()) }
    }

    /// Returns the servers whose error matches `is`.
    fn failed(
        &self,
        is: impl Fn(&Error) -> bool,
    ) -> impl Iterator<Item = (&'t ServerDescription, &'t Error)> {
        let servers = self.topology.servers().iter();
        servers.filter_map(move |server| {
            let error = server.error.as_ref().filter(|error| is(error))?;
            Some((&**server, error))
        })
    }

    /// Returns the servers whose error matches `is`, with their errors; `None` if there are none.
    fn failures(&self, is: impl Fn(&Error) -> bool) -> Option<Vec<(ServerAddress, Error)>> {
        let failed = self.failed(is);
        let failed = failed.map(|(server, error)| (server.address.clone(), error.clone()));
        Some(failed.collect()).filter(|failures: &Vec<_>| !failures.is_empty())
    }

    fn addresses(&self, is: impl Fn(&Error) -> bool) -> Vec<ServerAddress> {
        self.failed(is).map(|(server, _)| server.address.clone()).collect()
    }

    /// Returns whether any of `addresses` comes from the replica set's configuration.
    fn advertised(&self, addresses: &[ServerAddress]) -> bool {
        let mut addresses = addresses.iter();
        addresses.any(|address| self.topology.is_advertised(address))
    }

    /// Returns a diagnosis for each departure whose reason satisfies `is`. If a server departed
    /// because it has a different name, and the client cannot reach it by that name, the departure
    /// is omitted, because another diagnosis covers it.
    fn departures(&self, is: impl Fn(&DepartureReason) -> bool) -> impl Iterator<Item = Diagnosis> {
        let departures = self.topology.departures().iter();
        let missed = departures.filter(move |departure| match &departure.reason {
            DepartureReason::Misnamed { me } if self.differs(me).is_some() => false,
            reason => is(reason),
        });
        missed.cloned().map(Diagnosis::Departed)
    }

    /// Returns a diagnosis for each server that answered at one address but cannot be reached from
    /// this host by its own name.
    fn names_that_differ(&self) -> impl Iterator<Item = Diagnosis> {
        let servers = self.topology.servers().iter();
        servers.filter_map(|server| self.differs(&server.address))
    }

    fn differs(&self, me: &ServerAddress) -> Option<Diagnosis> {
        match self.topology.obstacle(self.topology.server(me)?)? {
            Obstacle::NamesDiffer { connected, me, error } => {
                Some(Diagnosis::AddressMismatch { address: connected, me, error: Some(error) })
            }
            _ => None,
        }
    }

    fn about_no_answers(&self, found: &mut Vec<Diagnosis>, explanation: &Explanation) {
        let servers = self.topology.servers();
        let silent = explanation.servers.iter().filter_map(|server| {
            let is_unknown = !server.server_type.is_available() && server.error.is_none();
            let time = server.connecting_for.filter(|time| is_unknown && *time >= UNANSWERED)?;
            Some((server.address.clone(), time))
        });
        let (addresses, times): (Vec<_>, Vec<_>) = silent.unzip();
        if let Some(time) = times.into_iter().min() {
            let advertised = self.advertised(&addresses);
            found.push(Diagnosis::NoAnswer { addresses, time, advertised });
        } else if servers.is_empty() {
            found.push(Diagnosis::NoServers { set_name: self.topology.set_name().map(Box::from) });
        } else if !self.any_available && servers.iter().all(|server| server.error.is_none()) {
            found.push(Diagnosis::NotAnsweredYet);
        }
    }

    /// Diagnoses connection failures, in the order of the steps in which a connection is opened.
    fn about_connections(&self, found: &mut Vec<Diagnosis>) {
        let addresses = self.addresses(|error| error.stage() == Stage::Dns);
        if !addresses.is_empty() {
            let advertised = self.advertised(&addresses);
            found.push(Diagnosis::Unresolvable { addresses, advertised });
        }
        let addresses = self.addresses(|error| error.stage() == Stage::Connect);
        if addresses.len() == self.topology.servers().len() && !addresses.is_empty() {
            let mut errors = self.failed(Error::is_timeout);
            found.push(Diagnosis::NothingReachable {
                addresses,
                timed_out: errors.next().is_some(),
            });
        } else if !addresses.is_empty() {
            let advertised = self.advertised(&addresses);
            found.push(Diagnosis::Unreachable { addresses, advertised });
        }
        let failures = self.failures(|error| error.stage() == Stage::Proxy);
        found.extend(failures.map(|failures| Diagnosis::ProxyFailed { failures }));
        let failures = self.failures(|error| error.stage() == Stage::Tls);
        found.extend(failures.map(|failures| Diagnosis::TlsFailed { failures }));
        let at_hello =
            |kind| move |error: &Error| error.stage() == Stage::Hello && error.kind() == kind;
        // If any server answers, the client and the servers agree about TLS, so the servers that
        // close connections are merely restarting.
        let addresses = self.addresses(at_hello(ErrorKind::Network));
        if !addresses.is_empty() && !self.any_available {
            found.push(Diagnosis::TlsExpected { addresses });
        }
        let failures = self.failures(at_hello(ErrorKind::Protocol));
        found.extend(failures.map(|failures| Diagnosis::NotMongoDb { failures }));
        let failures = self.failures(at_hello(ErrorKind::Command));
        found.extend(failures.map(|failures| Diagnosis::HelloRefused { failures }));
        let rejected =
            |error: &Error| error.stage() == Stage::Auth && error.kind() == ErrorKind::Command;
        let rejected = self.failures(rejected).into_iter().flatten();
        let refused = |(address, error)| Diagnosis::AuthenticationFailed { address, error };
        found.extend(rejected.map(refused));
    }

    /// Diagnoses wrong replica set names and addresses.
    fn about_names(&self, found: &mut Vec<Diagnosis>) {
        let misnamed = self.failures(|error| error.kind() == ErrorKind::SetName);
        let wrong = |(address, error)| Diagnosis::WrongSetName { address, error };
        found.extend(misnamed.into_iter().flatten().map(wrong));
        if !self.topology.topology_type().is_replica_set() {
            return;
        }
        let servers = self.topology.servers().iter();
        found.extend(servers.filter_map(|server| {
            let me = server.me.as_ref().filter(|me| **me != server.address)?;
            Some(Diagnosis::AddressMismatch {
                address: server.address.clone(),
                me: me.clone(),
                error: None,
            })
        }));
    }

    fn available(&self) -> impl Iterator<Item = &'t ServerDescription> {
        let servers = self.topology.servers().iter();
        servers.filter(|server| server.server_type.is_available()).map(|server| &**server)
    }

    /// Returns a diagnosis if servers answer, but none of them belongs to a replica set.
    fn not_initiated(&self) -> Option<Diagnosis> {
        let are_ghosts = self.any_available
            && self.available().all(|own| own.server_type == ServerType::RsGhost);
        are_ghosts.then(|| Diagnosis::NotInitiated {
            addresses: self.available().map(|server| server.address.clone()).collect(),
        })
    }

    /// Returns the reason why there is no primary although members answer.
    fn missing_primary(&self) -> Option<Diagnosis> {
        let is_waiting = self.topology.topology_type() == TopologyType::ReplicaSetNoPrimary;
        if !is_waiting || !self.any_available || self.not_initiated().is_some() {
            return None;
        }
        let available = || self.available();
        let named = available().filter_map(|server| server.primary.as_ref());
        let mut unreachable = named.filter(|primary| {
            let server = self.topology.server(primary);
            server.is_none_or(|server| !server.server_type.is_available())
        });
        if let Some(primary) = unreachable.next() {
            return Some(Diagnosis::PrimaryUnreachable { address: primary.clone() });
        }
        Some(Diagnosis::NoPrimary {
            reached: available().count(),
            members: self.topology.servers().len(),
        })
    }
}

/// The minimum time after which an attempt to connect counts as unanswered. A shorter wait may be
/// due to a lost packet, which TCP sends again after a second.
const UNANSWERED: Duration = Duration::from_secs(1);

/// Returns whether the operation requires a primary.
fn wants_primary(operation: &Operation) -> bool {
    match operation {
        Operation::Write => true,
        Operation::Read(preference) => preference.mode == ReadMode::Primary,
    }
}

/// Returns the criterion that excluded otherwise suitable servers, if there was one. If there were
/// several, returns the one that selection applies last, because relaxing it alone can make a
/// server suitable.
fn exclusion(explanation: &Explanation) -> Option<Diagnosis> {
    let any = |is: fn(&Rejection) -> bool| {
        let mut servers = explanation.servers.iter();
        servers.any(|server| matches!(&server.verdict, Verdict::Rejected(why) if is(why)))
    };
    if any(|why| matches!(why, Rejection::Selector)) {
        Some(Diagnosis::DroppedBySelector)
    } else if any(|why| matches!(why, Rejection::Tags { .. })) {
        Some(Diagnosis::NoMatchingTags)
    } else if any(|why| matches!(why, Rejection::Stale { .. })) {
        Some(Diagnosis::AllStale)
    } else if any(|why| matches!(why, Rejection::StalenessUnknown { .. })) {
        Some(Diagnosis::StalenessUnknown)
    } else {
        None
    }
}
