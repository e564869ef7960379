//! Explains why each server was eligible or rejected.

use alloc::{sync::Arc, vec::Vec};
use core::{fmt, time::Duration};

use sdam_core::{
    address::ServerAddress,
    error::Error,
    options::ConfigError,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};

use crate::{
    algorithm::{latency, latency_limit, selected},
    criteria::{Criteria, Operation},
    settings::Settings,
    suitability::{ServerTypes, Suitability, TagFilter},
};

#[cfg(test)]
mod tests;

/// The result of selection for each server of a topology.
///
/// `{}` prints one line for logs and error messages; `{:#}` prints one line per server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The operation for which a server was selected.
    pub operation: Operation,
    /// The type of the topology.
    pub topology_type: TopologyType,
    /// The reason why the topology as a whole was refused.
    pub refusal: Option<Refusal>,
    /// Every server, in the order of the topology.
    pub servers: Vec<ExplainedServer>,
}

/// The reason why the topology or the criteria, rather than a single server, were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A server and the client have no wire version in common; the string names the server.
    Incompatible(Arc<str>),
    /// The criteria can never be met.
    Criteria(ConfigError),
    /// The topology has no servers: all were removed, or it is closed.
    Empty,
    /// No server has been identified yet.
    Unidentified,
}

/// A server, and the verdict on it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExplainedServer {
    /// The server's address.
    pub address: ServerAddress,
    /// The server's type.
    pub server_type: ServerType,
    /// The error that makes the server unavailable, if the server has one.
    pub error: Option<Error>,
    /// The verdict of selection.
    pub verdict: Verdict,
    /// True if the connection is direct and servers of this type refuse the operation, although
    /// selection has to choose the server.
    pub refuses: bool,
    /// The time since the server's last answer, if the server is available but suspected to have
    /// failed. The topology sets this field, because descriptions do not contain the time.
    pub silent_for: Option<Duration>,
    /// The time since a check began to open a connection that is not open yet. The topology sets
    /// this field.
    pub connecting_for: Option<Duration>,
}

/// The result of selection for one server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The server is suitable and in the latency window, so it may be chosen.
    Eligible {
        /// The server's average round-trip time.
        average: Option<Duration>,
    },
    /// The server is not suitable, or not in the latency window.
    Rejected(Rejection),
    /// The criteria were refused before any server was considered.
    NotConsidered,
}

/// The stage of selection that rejected a server, with the values that were compared.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rejection {
    /// The server's type cannot serve the operation.
    Type {
        /// The required type: `a primary`, `a mongos` and so on.
        required: &'static str,
        /// The server's type.
        own: ServerType,
    },
    /// The server would otherwise be suitable, but available servers of another type are preferred.
    NotPreferred {
        /// The preferred type.
        preferred: ServerType,
    },
    /// The server exceeds the staleness limit.
    Stale {
        /// The estimated staleness.
        staleness: Duration,
        /// The limit of the read preference.
        limit: Duration,
    },
    /// There is a staleness limit, and the server's staleness is unknown.
    StalenessUnknown {
        /// The limit of the read preference.
        limit: Duration,
    },
    /// The server lacks a tag.
    Tags {
        /// The server's tags.
        own: TagSet,
        /// The first tag set that matches a server; `None` if none does.
        effective: Option<TagSet>,
    },
    /// The server is deprioritized, and other servers can be used instead.
    Deprioritized,
    /// A selector dropped the server.
    Selector,
    /// The server is outside the latency window.
    Latency {
        /// The server's average round-trip time; `None` if it is not known.
        average: Option<Duration>,
        /// The average round-trip time of the fastest suitable server.
        fastest: Duration,
        /// The width of the latency window.
        threshold: Duration,
    },
}

/// Explains the result of selection for each server of `topology`.
///
/// Calls the selectors once, as selection does.
pub fn explain(
    topology: &TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
) -> Explanation {
    let explainer = Suitability::new(topology, settings, criteria)
        .map(|suitability| Explainer::new(topology, settings, criteria, suitability));
    let verdict = |index, server| match &explainer {
        Ok(explainer) => explainer.verdict(index, server),
        Err(_) => Verdict::NotConsidered,
    };
    let servers = topology.servers().iter().enumerate().map(|(index, server)| ExplainedServer {
        address: server.address.clone(),
        server_type: server.server_type,
        error: server.error.clone(),
        verdict: verdict(index, server),
        refuses: topology.topology_type() == TopologyType::Single
            && server.server_type.is_available()
            && match criteria.operation_on(topology) {
                Operation::Write => !server.server_type.is_writable(),
                Operation::Read(_) => !server.server_type.is_data_bearing(),
            },
        silent_for: None,
        connecting_for: None,
    });
    Explanation {
        operation: criteria.operation_on(topology).clone(),
        topology_type: topology.topology_type(),
        servers: servers.collect(),
        refusal: match (refusal(topology), explainer) {
            (Some(Refusal::Incompatible(error)), _) => Some(Refusal::Incompatible(error)),
            (_, Err(error)) => Some(Refusal::Criteria(error)),
            (refusal, Ok(_)) => refusal,
        },
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
    /// Returns the servers that may be chosen. There are none if the topology is incompatible.
    pub fn eligible(&self) -> impl Iterator<Item = &ExplainedServer> {
        let incompatible = matches!(self.refusal, Some(Refusal::Incompatible(_)));
        let servers = self.servers.iter().filter(|server| server.is_eligible());
        servers.filter(move |_| !incompatible)
    }

    /// Returns the servers that may be chosen and whose type does not refuse the operation.
    pub fn serving(&self) -> impl Iterator<Item = &ExplainedServer> {
        self.eligible().filter(|server| !server.refuses)
    }
}

impl ExplainedServer {
    /// Returns whether the server is suitable and in the latency window.
    pub(crate) fn is_eligible(&self) -> bool {
        matches!(self.verdict, Verdict::Eligible { .. })
    }
}

/// A selection, together with the data needed to explain its result.
struct Explainer<'a> {
    suitability: Suitability<'a>,
    /// The criteria for secondaries in a mode that falls back to the primary, used to explain why
    /// no secondary was eligible.
    secondaries: Option<Suitability<'a>>,
    preference: Option<&'a ReadPreference>,
    /// The indexes of the servers that the selectors kept.
    suitable: Vec<usize>,
    /// The latency of the fastest of these servers.
    fastest: u64,
    threshold: Duration,
}

impl<'a> Explainer<'a> {
    fn new(
        topology: &TopologyDescription,
        settings: &Settings,
        criteria: &'a Criteria,
        suitability: Suitability<'a>,
    ) -> Self {
        let preference = criteria.operation_on(topology).read_preference();
        let secondaries = preference
            .filter(|preference| preference.mode == ReadMode::SecondaryPreferred)
            .filter(|_| {
                topology.topology_type().is_replica_set()
                    && suitability.types == ServerTypes::PRIMARY
            })
            .map(|preference| {
                Suitability::eligible(
                    topology,
                    settings,
                    preference,
                    ServerTypes::SECONDARY,
                    suitability.deprioritized,
                )
            });
        let suitable = selected(topology, &suitability, settings, criteria);
        let fastest = suitable.iter().map(|candidate| latency(candidate.server)).min();
        Self {
            suitability,
            secondaries,
            preference,
            fastest: fastest.unwrap_or_default(),
            suitable: suitable.iter().map(|candidate| candidate.index).collect(),
            threshold: settings.local_threshold,
        }
    }

    fn verdict(&self, index: usize, server: &ServerDescription) -> Verdict {
        let average = server.rtt.map(|rtt| rtt.average);
        Verdict::Rejected(if !self.suitability.is_suitable(server) {
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

    /// Returns the reason why `server` is not suitable.
    fn unsuitable(&self, server: &ServerDescription) -> Rejection {
        let wrong_type =
            Rejection::Type { required: self.required_type(), own: server.server_type };
        if !server.server_type.is_available() {
            return wrong_type;
        }
        if self.suitability.is_deprioritized(server) {
            return Rejection::Deprioritized;
        }
        let suitability = match (&self.secondaries, server.server_type) {
            (Some(suitability), ServerType::RsSecondary) => suitability,
            _ => &self.suitability,
        };
        if !suitability.types.contains(server.server_type) {
            return self.not_preferred(server.server_type).unwrap_or(wrong_type);
        }
        if let Some(limit) = suitability.staleness.filter(|limit| !limit.is_met_by(server)) {
            let staleness = limit
                .estimate(server)
                .map(|nanos| Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)));
            let limit = limit.limit;
            return match staleness {
                Some(staleness) => Rejection::Stale { staleness, limit },
                None => Rejection::StalenessUnknown { limit },
            };
        }
        Rejection::Tags {
            own: server.tags.clone(),
            effective: match suitability.tags {
                TagFilter::Set(tags) => Some(tags.clone()),
                TagFilter::Any | TagFilter::NoMatch => None,
            },
        }
    }

    /// Returns the rejection for a server of this type if it would be suitable without the servers
    /// of the preferred type.
    fn not_preferred(&self, server_type: ServerType) -> Option<Rejection> {
        let preferred = match (self.preference?.mode, server_type) {
            (ReadMode::PrimaryPreferred, ServerType::RsSecondary) => ServerType::RsPrimary,
            (ReadMode::SecondaryPreferred, ServerType::RsPrimary) => ServerType::RsSecondary,
            _ => return None,
        };
        Some(Rejection::NotPreferred { preferred })
    }

    /// Returns the required type of server.
    fn required_type(&self) -> &'static str {
        match (self.suitability.types, self.preference.map(|it| it.mode)) {
            (
                ServerTypes::PRIMARY | ServerTypes::SECONDARY,
                Some(ReadMode::PrimaryPreferred | ReadMode::SecondaryPreferred),
            )
            | (ServerTypes::PRIMARY_AND_SECONDARY, _) => "a primary or a secondary",
            // This is a write to a replica set whose primary is unknown.
            (ServerTypes::PRIMARY, _) | (ServerTypes::NONE, None) => "a primary",
            (ServerTypes::SECONDARY, _) => "a secondary",
            (ServerTypes::MONGOS, _) => "a mongos",
            _ => "a usable server",
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, next) = if f.alternate() { ("\n  ", "\n  ") } else { (" ", "; ") };
        write!(f, "{} on {}:", self.operation, self.topology_type)?;
        let mut separator = first;
        if let Some(refusal) = &self.refusal {
            write!(f, "{separator}{refusal}")?;
            separator = next;
        }
        for server in &self.servers {
            write!(f, "{separator}{server}")?;
            separator = next;
        }
        Ok(())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incompatible(error) => f.write_str(error),
            Self::Criteria(error) => error.fmt(f),
            Self::Empty => f.write_str("there are no servers"),
            Self::Unidentified => f.write_str("no server has been identified yet"),
        }
    }
}

impl fmt::Display for ExplainedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) ", self.address, self.server_type)?;
        match (&self.verdict, &self.error) {
            (Verdict::Eligible { average: None }, _) => f.write_str("is eligible"),
            (Verdict::Eligible { average: Some(rtt) }, _) => {
                write!(f, "is eligible at {}", Millis(*rtt))
            }
            (Verdict::NotConsidered, _) => f.write_str("was not considered"),
            (_, Some(error)) if !self.server_type.is_available() => {
                write!(f, "is not available: {error:#}")
            }
            (_, None) if !self.server_type.is_available() => match self.connecting_for {
                Some(time) => {
                    write!(f, "has not answered an attempt to connect for {}", Seconds(time))
                }
                None => f.write_str("has not answered yet"),
            },
            (Verdict::Rejected(rejection), _) => rejection.fmt(f),
        }?;
        if self.refuses {
            write!(f, ", because the connection is direct, but refuses the operation")?;
        }
        match self.silent_for {
            Some(time) => write!(f, ", and silent for {}", Seconds(time)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type { required, own } => {
                let why = match own {
                    ServerType::RsOther => ": it is starting, recovering, rolling back or hidden",
                    ServerType::RsArbiter => ": it is an arbiter, which holds no data",
                    ServerType::RsGhost => ": it belongs to no replica set",
                    _ => "",
                };
                write!(f, "is not {required}{why}")
            }
            Self::NotPreferred { preferred } => {
                write!(f, "is only used when there is no suitable {preferred}")
            }
            Self::Stale { staleness, limit } => write!(
                f,
                "lags {:.3} s behind, which is more than {} s",
                staleness.as_secs_f64(),
                limit.as_secs_f64()
            ),
            Self::StalenessUnknown { limit } => write!(
                f,
                "does not report its last write, so it may lag more than {} s behind",
                limit.as_secs_f64()
            ),
            Self::Tags { own, effective: Some(required) } => write!(
                f,
                "has the tags {own}, but {required} is the first tag set that some server matches"
            ),
            Self::Tags { own, .. } => {
                write!(f, "has the tags {own}, and no tag set matches any server")
            }
            Self::Deprioritized => f.write_str("is deprioritized, and other servers are suitable"),
            Self::Selector => f.write_str("was dropped by a server selector"),
            Self::Latency { average: Some(average), fastest, threshold } => write!(
                f,
                "answers in {}, more than {} slower than the fastest ({})",
                Millis(*average),
                Millis(*threshold),
                Millis(*fastest)
            ),
            Self::Latency { .. } => f.write_str("has no round-trip time yet"),
        }
    }
}

/// A duration that is displayed in seconds, to a tenth.
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

/// A duration that is displayed in milliseconds, with microsecond precision.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0.as_micros() as f64 / 1e3)
    }
}
