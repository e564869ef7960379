//! Explanations of why each server was eligible or rejected.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use sdam_core::{
    address::ServerAddress,
    error::ServerError,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};

use crate::{
    criteria::{Criteria, CriteriaError, Operation},
    rule::{Rule, Tags, Types},
    settings::Settings,
    steps::{latency, latency_limit, narrow, rule_candidates},
};

/// The result of selection for every server of a topology.
///
/// `{}` prints one line for logs and error texts, `{:#}` one line per server for people.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The operation.
    pub operation: Operation,
    /// The type of the topology.
    pub topology_type: TopologyType,
    /// The reason why the topology as a whole was refused.
    pub refusal: Option<Refusal>,
    /// Every server, in the order of the topology.
    pub servers: Vec<ExplainedServer>,
}

/// A reason that concerns the topology or the criteria instead of a single server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A server and the client have no wire version in common; the text names the server.
    Incompatible(Arc<str>),
    /// The criteria can never be met.
    Criteria(CriteriaError),
    /// The topology has no servers: all were removed, or it is closed.
    Empty,
    /// No server has been identified yet.
    Unidentified,
}

/// One server and its verdict.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExplainedServer {
    /// The server's address.
    pub address: ServerAddress,
    /// The server's type.
    pub server_type: ServerType,
    /// The error because of which the server is not available, if any.
    pub error: Option<Arc<ServerError>>,
    /// The verdict of selection.
    pub verdict: Verdict,
}

/// The verdict of selection on a server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Suitable and in the latency window: it may be chosen.
    Eligible {
        /// Its average round-trip time.
        average: Option<Duration>,
    },
    /// Not suitable, or not in the latency window.
    Rejected(Rejection),
    /// The criteria were refused before any server was considered.
    NotConsidered,
}

/// The stage of selection that rejected a server, with the values it compared.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rejection {
    /// Its type does not serve the operation.
    Type {
        /// The required type: `a primary`, `a mongos` and so on.
        wanted: &'static str,
    },
    /// It would be suitable, but available servers of another type are preferred.
    Outranked {
        /// The preferred type.
        by: ServerType,
    },
    /// It exceeds the staleness limit.
    Stale {
        /// The estimated staleness.
        staleness: Duration,
        /// The limit.
        limit: Duration,
    },
    /// There is a staleness limit, and the server's staleness is unknown.
    StalenessUnknown {
        /// The limit.
        limit: Duration,
    },
    /// It lacks a tag.
    Tags {
        /// The server's tags.
        own: TagSet,
        /// The first tag set that matches a server; `None` if none does.
        in_force: Option<TagSet>,
    },
    /// It is deprioritized, and there are other servers.
    Deprioritized,
    /// A selector dropped it.
    Selector,
    /// It is outside the latency window.
    Latency {
        /// Its average round-trip time; `None` if it is not known.
        average: Option<Duration>,
        /// The average round-trip time of the fastest suitable server.
        fastest: Duration,
        /// The width of the latency window.
        threshold: Duration,
    },
}

/// Explains the result of selection for every server of `topology`.
///
/// Calls the selectors once, as selection does.
pub fn explain(
    topology: &TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
) -> Explanation {
    let (refusal, verdicts) = match Rule::new(topology, settings, criteria) {
        Ok(rule) => {
            let judge = Judge::new(topology, settings, criteria, rule);
            let servers = topology.servers().iter().enumerate();
            let verdicts = servers.map(|(index, server)| judge.verdict(index, server));
            (refusal(topology), verdicts.collect())
        }
        Err(error) => {
            let verdicts = topology.servers().iter().map(|_| Verdict::NotConsidered);
            let refusal = match refusal(topology) {
                Some(Refusal::Incompatible(error)) => Refusal::Incompatible(error),
                _ => Refusal::Criteria(error),
            };
            (Some(refusal), verdicts.collect::<Vec<_>>())
        }
    };
    let servers = topology.servers().iter().zip(verdicts);
    Explanation {
        operation: criteria.operation_on(topology).clone(),
        topology_type: topology.topology_type(),
        refusal,
        servers: servers
            .map(|(server, verdict)| ExplainedServer {
                address: server.address.clone(),
                server_type: server.server_type,
                error: server.error.clone(),
                verdict,
            })
            .collect(),
    }
}

fn refusal(topology: &TopologyDescription) -> Option<Refusal> {
    if let Some(error) = topology.compatibility_error() {
        Some(Refusal::Incompatible(error.into()))
    } else if topology.servers().is_empty() {
        Some(Refusal::Empty)
    } else if topology.topology_type() == TopologyType::Unknown {
        Some(Refusal::Unidentified)
    } else {
        None
    }
}

impl Explanation {
    /// Returns the servers that may be chosen; none if the topology is incompatible.
    pub fn eligible(&self) -> impl Iterator<Item = &ExplainedServer> {
        let incompatible = matches!(self.refusal, Some(Refusal::Incompatible(_)));
        let servers = self.servers.iter().filter(|server| server.is_eligible());
        servers.filter(move |_| !incompatible)
    }
}

impl ExplainedServer {
    /// Returns whether the server is suitable and in the latency window.
    pub fn is_eligible(&self) -> bool {
        matches!(self.verdict, Verdict::Eligible { .. })
    }
}

/// One selection, with the data to explain its result.
struct Judge<'a> {
    rule: Rule<'a>,
    /// The rule for secondaries where the primary is the fallback: explains why none was eligible.
    passed_over: Option<Rule<'a>>,
    preference: Option<&'a ReadPreference>,
    /// The indexes of the servers that the selectors have kept.
    suitable: Vec<usize>,
    fastest: u64,
    threshold: Duration,
}

impl<'a> Judge<'a> {
    fn new(
        topology: &TopologyDescription,
        settings: &Settings,
        criteria: &'a Criteria,
        rule: Rule<'a>,
    ) -> Self {
        let preference = criteria.operation_on(topology).read_preference();
        let passed_over = preference
            .filter(|preference| preference.mode == ReadMode::SecondaryPreferred)
            .filter(|_| topology.topology_type().is_replica_set() && rule.types == Types::PRIMARY)
            .map(|preference| {
                Rule::eligible(topology, settings, preference, Types::SECONDARY, rule.avoid)
            });
        let suitable = narrow(rule_candidates(topology, &rule), settings, criteria);
        let latencies = suitable.iter().map(|candidate| latency(candidate.server));
        Self {
            rule,
            passed_over,
            preference,
            fastest: latencies.min().unwrap_or_default(),
            suitable: suitable.iter().map(|candidate| candidate.index).collect(),
            threshold: settings.local_threshold,
        }
    }

    fn verdict(&self, index: usize, server: &ServerDescription) -> Verdict {
        let average = server.rtt.map(|rtt| rtt.average);
        Verdict::Rejected(if !self.rule.admits(server) {
            self.unsuitable(server)
        } else if !self.suitable.contains(&index) {
            Rejection::Selector
        } else if latency(server) > latency_limit(self.fastest, self.threshold) {
            Rejection::Latency {
                average,
                fastest: Duration::from_nanos(self.fastest),
                threshold: self.threshold,
            }
        } else {
            return Verdict::Eligible { average };
        })
    }

    /// Returns why the rule rejects `server`.
    fn unsuitable(&self, server: &ServerDescription) -> Rejection {
        let wanted = Rejection::Type {
            wanted: self.wanted(),
        };
        if !server.server_type.is_available() {
            return wanted;
        }
        if self.rule.avoids(server) {
            return Rejection::Deprioritized;
        }
        let rule = match (&self.passed_over, server.server_type) {
            (Some(rule), ServerType::RsSecondary) => rule,
            _ => &self.rule,
        };
        if !rule.types.contains(server.server_type) {
            return self.outranked(server.server_type).unwrap_or(wanted);
        }
        if let Some(limit) = rule.staleness.filter(|limit| !limit.admits(server)) {
            let staleness = limit
                .estimate(server)
                .map(|nanos| Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)));
            let limit = limit.limit();
            return match staleness {
                Some(staleness) => Rejection::Stale { staleness, limit },
                None => Rejection::StalenessUnknown { limit },
            };
        }
        Rejection::Tags {
            own: server.tags.clone(),
            in_force: match rule.tags {
                Tags::Set(tags) => Some(tags.clone()),
                Tags::Any | Tags::Unmatched => None,
            },
        }
    }

    /// Returns the rejection if a server of this type would be suitable without servers of the
    /// preferred type.
    fn outranked(&self, server_type: ServerType) -> Option<Rejection> {
        let by = match (self.preference?.mode, server_type) {
            (ReadMode::PrimaryPreferred, ServerType::RsSecondary) => ServerType::RsPrimary,
            (ReadMode::SecondaryPreferred, ServerType::RsPrimary) => ServerType::RsSecondary,
            _ => return None,
        };
        Some(Rejection::Outranked { by })
    }

    /// Returns the required type of server.
    fn wanted(&self) -> &'static str {
        match (self.rule.types, self.preference.map(|it| it.mode)) {
            (
                Types::PRIMARY | Types::SECONDARY,
                Some(ReadMode::PrimaryPreferred | ReadMode::SecondaryPreferred),
            )
            | (Types::PRIMARY_AND_SECONDARY, _) => "a primary or a secondary",
            // NONE: a write to a replica set whose primary is unknown.
            (Types::PRIMARY, _) | (Types::NONE, None) => "a primary",
            (Types::SECONDARY, _) => "a secondary",
            (Types::MONGOS, _) => "a mongos",
            _ => "a usable server",
        }
    }
}

#[cfg(test)]
mod tests;
mod text;
