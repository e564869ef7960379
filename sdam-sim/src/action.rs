//! What a test or an operator does to a deployment.

mod display;
mod parse;

use std::{fmt, time::Duration};

pub use self::parse::ParseActionError;
pub(crate) use self::{
    display::{Word, seconds},
    parse::{parse_seconds, value},
};
pub use crate::fail_command::{FailCommand, Mode};
use crate::{
    MemberId,
    config::{MemberConfig, SetConfig},
    version::ServerVersion,
};

/// A member, named directly or by its role at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The member with this number.
    Member(MemberId),
    /// The primary; of two, the one elected last.
    Primary,
    /// The first secondary.
    Secondary,
}

impl From<MemberId> for Target {
    fn from(member: MemberId) -> Self {
        Self::Member(member)
    }
}

impl From<u16> for Target {
    fn from(number: u16) -> Self {
        Self::Member(MemberId(number))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => write!(f, "member {member}"),
            Self::Primary => f.write_str("the primary"),
            Self::Secondary => f.write_str("a secondary"),
        }
    }
}

/// What clients notice of a change of the split horizon (M-30).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HorizonPolicy {
    /// Their connections are closed, as all releases do.
    #[default]
    Close,
    /// Waiting hellos are answered with a SplitHorizonChange error, as the first draft of the
    /// awaitable hello has it.
    Error,
}

/// Something that happens to a deployment from outside.
///
/// Its text form ([`Action::SYNTAX`]), which it is written as and read from, is what scripts and
/// [scenarios](crate::scenario) consist of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// The primary steps down, hands over if it can, and does not run again for `period`.
    StepDown {
        /// How long it does not run for election.
        period: Duration,
    },
    /// The member runs for election at once.
    StepUp(Target),
    /// The member does not run for election for `period`; zero lets it run again.
    ReplSetFreeze(Target, Duration),
    /// The process dies without a word.
    Kill(Target),
    /// The process shuts down in order (M-31).
    Shutdown(Target),
    /// The process starts again, after it was killed if it still runs (M-33).
    Restart(Target),
    /// The process stops answering, without closing anything.
    Freeze(Target),
    /// The frozen process goes on where it stopped.
    Thaw(Target),
    /// Members of the one list do not hear those of the other.
    Partition(Vec<Target>, Vec<Target>),
    /// The member hears no other member; clients still reach it.
    Isolate(Target),
    /// Clients do not reach the member; members still do.
    CutOff(Target),
    /// All partitions end and clients reach everybody.
    Heal,
    /// The others elect a second primary while the first goes on, until [`Action::Heal`].
    SplitBrain,
    /// The set's members and settings change; the version is raised by the deployment.
    Reconfig(SetConfig),
    /// One member's entry in the configuration changes.
    Edit(Target, Vec<Edit>),
    /// The process is added to the configuration.
    Add(MemberId),
    /// The member is removed from the configuration.
    Remove(Target),
    /// The member enters or leaves maintenance.
    Maintenance(Target, bool),
    /// The way clients find the set changes.
    Horizon(HorizonPolicy),
    /// The member's commands fail as told, or no more.
    FailPoint(Target, Option<FailCommand>),
    /// The member streams to clients that allow it, or answers each awaitable hello with one reply
    /// (M-20).
    Exhaust(Target, bool),
    /// The member tells of a change, though nothing has changed, every time this has passed; or no
    /// more. Its end ends that, too.
    Flood(Target, Option<Duration>),
    /// The member lags behind the primary.
    Lag(Target, Duration),
    /// The member restarts with another release.
    Upgrade(Target, ServerVersion),
}

/// A change of one member's entry in the configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Edit {
    /// Its priority.
    Priority(f64),
    /// Whether it votes.
    Votes(bool),
    /// Whether clients are told of it.
    Hidden(bool),
    /// How far it stays behind.
    Delay(Duration),
    /// All its tags.
    Tags(Vec<(String, String)>),
}

impl Edit {
    /// Changes `entry`.
    pub(crate) fn apply(&self, entry: &mut MemberConfig) {
        match self {
            Self::Priority(priority) => entry.priority = *priority,
            Self::Votes(votes) => entry.votes = *votes,
            Self::Hidden(hidden) => entry.hidden = *hidden,
            Self::Delay(delay) => entry.delay = *delay,
            Self::Tags(tags) => {
                let shared = |(name, value): &(String, String)| {
                    (name.as_str().into(), value.as_str().into())
                };
                entry.tags = tags.iter().map(shared).collect();
            }
        }
    }
}

/// Why an [`Action`] was not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionError {
    /// Nobody is what the target asks for.
    NoTarget(Target),
    /// The deployment is no replica set.
    NoReplicaSet,
    /// No majority would vote for the member, or it may not run.
    NotElected(MemberId),
    /// The process does not run.
    NotRunning(MemberId),
    /// The member has the wrong role.
    WrongRole(MemberId),
    /// The configuration would have no electable member, or names an unknown process.
    InvalidConfig,
}

impl fmt::Display for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget(target) => write!(f, "there is no such member: {target}"),
            Self::NoReplicaSet => f.write_str("the deployment is not a replica set"),
            Self::NotElected(member) => write!(f, "member {member} cannot be elected now"),
            Self::NotRunning(member) => write!(f, "member {member} does not run"),
            Self::WrongRole(member) => {
                write!(f, "the role of member {member} does not allow it")
            }
            Self::InvalidConfig => f.write_str(
                "the configuration has no electable member, or names a process that does not exist",
            ),
        }
    }
}

impl std::error::Error for ActionError {}
