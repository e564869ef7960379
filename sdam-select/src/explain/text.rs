//! The messages of explanations.

use core::{fmt, time::Duration};

use sdam_core::server::ServerType;

use super::{ExplainedServer, Explanation, Refusal, Rejection, Verdict};

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
