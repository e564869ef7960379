//! Actions that a test or an operator applies to a deployment, as data and as lines of text.

mod parse;

use std::{fmt, time::Duration};

use bson::{Document, doc};

pub use self::parse::ParseActionError;
pub(crate) use self::parse::{parse_seconds, unexpected, unless_off, value};
pub use crate::fail_command::{BadReply, FailCommand, Mode};
use crate::{
    MemberId,
    config::{MemberConfig, SetConfig},
    version::ServerVersion,
};

/// A member, named directly or by its current role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The member with this id.
    Member(MemberId),
    /// The primary. If there are two primaries, the one that was elected last.
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

/// The way in which clients learn that the split horizon has changed (M-30).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HorizonPolicy {
    /// Client connections are closed, as in all releases.
    #[default]
    Close,
    /// Awaitable hellos fail with a SplitHorizonChange error, as in the first draft of the
    /// awaitable hello.
    Error,
}

/// An action that a test or an operator applies to a deployment.
///
/// In scripts and [scenarios](crate::scenario), actions are written as text ([`Action::SYNTAX`]).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// The primary steps down and, if possible, hands over to another member. It does not run for
    /// election for `period`.
    StepDown {
        /// The time for which the member does not run for election.
        period: Duration,
    },
    /// The member runs for election immediately.
    StepUp(Target),
    /// The member does not run for election for this period. A period of zero ends an earlier
    /// freeze.
    ReplSetFreeze(Target, Duration),
    /// The process is killed without announcing its shutdown.
    Kill(Target),
    /// The process shuts down cleanly (M-31).
    Shutdown(Target),
    /// The process is restarted. If it is still running, it is killed first (M-33).
    Restart(Target),
    /// The process stops answering but keeps its connections open.
    Freeze(Target),
    /// The frozen process resumes where it stopped.
    Thaw(Target),
    /// The members in one list are disconnected from those in the other.
    Partition(Vec<Target>, Vec<Target>),
    /// The member is disconnected from all other members, but clients can still reach it.
    Isolate(Target),
    /// Clients cannot reach the member, but other members can.
    CutOff(Target),
    /// All partitions end, and clients can reach every member again.
    Heal,
    /// The other members elect a second primary, while the first one stays primary until
    /// [`Action::Heal`].
    SplitBrain,
    /// The set's members and settings change. The deployment increments the version.
    Reconfig(SetConfig),
    /// One member's entry in the configuration changes.
    Edit(Target, Vec<Edit>),
    /// A process that is not yet a member is added to the configuration.
    Add(MemberId),
    /// The member is removed from the configuration.
    Remove(Target),
    /// The member enters maintenance mode if true, or leaves it if false.
    Maintenance(Target, bool),
    /// The split horizon changes.
    Horizon(HorizonPolicy),
    /// The fail point `failCommand` is set on the member. `None` turns it off.
    FailPoint(Target, Option<FailCommand>),
    /// If true, the member streams replies to clients that allow it; if false, it answers each
    /// awaitable hello with one reply (M-20).
    Exhaust(Target, bool),
    /// The member increments its topology version at this interval, even though nothing has
    /// changed. It stops when the interval is `None` or its process ends.
    Flood(Target, Option<Duration>),
    /// The member's replication lag behind the primary is set.
    Lag(Target, Duration),
    /// The member is restarted with another release.
    Upgrade(Target, ServerVersion),
    /// Clients that connect to the member find another server instead. On `None`, they find the
    /// member itself again. In either case, connections that are open at that moment are closed.
    Impostor(Target, Option<Impostor>),
}

/// A change to one member's entry in the configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Edit {
    /// The priority.
    Priority(f64),
    /// True if the member votes in elections.
    Votes(bool),
    /// True if the member is hidden from clients.
    Hidden(bool),
    /// The member's replication delay behind the primary.
    Delay(Duration),
    /// The tags of the member. They replace all earlier tags.
    Tags(Vec<(String, String)>),
}

impl Edit {
    /// Applies the change to `entry`.
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

/// The reason why an [`Action`] could not be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ActionError {
    /// No member matches the target.
    #[error("{0} does not exist now")]
    NoTarget(Target),
    /// The deployment is not a replica set.
    #[error("the deployment is not a replica set")]
    NoReplicaSet,
    /// The member would not get a majority of the votes, or is not allowed to run for election.
    #[error("member {0} cannot be elected now")]
    NotElected(MemberId),
    /// The process is not running.
    #[error("member {0} is not running")]
    NotRunning(MemberId),
    /// The member has the wrong role.
    #[error("the role of member {0} does not allow it")]
    WrongRole(MemberId),
    /// The configuration would have no electable member, it names an unknown process, or it gives a
    /// priority to a member that must not have one.
    #[error(
        "the configuration has no electable member, names a process that does not exist, or has a \
         member that is hidden, delayed or does not vote and has a priority above 0"
    )]
    InvalidConfig,
}

/// The server that clients find at a member's address in place of the member.
///
/// The impostor's replies to hello have no topology version, so clients poll it. All commands
/// other than hello reach the member itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[derive(strum::Display, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Impostor {
    /// A server without a replica set, such as a member that was restarted without
    /// `--replSet`.
    Standalone,
    /// A mongos.
    Mongos,
    /// A member that does not know its configuration yet.
    Ghost,
    /// An arbiter of the set.
    Arbiter,
    /// A hidden member of the set.
    Hidden,
    /// A secondary that has another name in the configuration.
    Renamed,
    /// A secondary of another set.
    OtherSet,
    /// The primary of another set.
    OtherPrimary,
}

/// The fields of a hello reply that identify the server that answers.
const IDENTITY: [&str; 20] = [
    "topologyVersion",
    "isWritablePrimary",
    "ismaster",
    "msg",
    "setName",
    "setVersion",
    "electionId",
    "hosts",
    "passives",
    "arbiters",
    "primary",
    "me",
    "secondary",
    "arbiterOnly",
    "passive",
    "hidden",
    "tags",
    "lastWrite",
    "isreplicaset",
    "secondaryDelaySecs",
];

impl Impostor {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name of the set to which [`OtherSet`](Self::OtherSet) and
    /// [`OtherPrimary`](Self::OtherPrimary) belong.
    pub const SET: &str = "other";

    /// Changes the reply of the member at `address` in the set `set` into the impostor's reply.
    /// `writable` is the name of the field that states whether a server accepts writes.
    pub(crate) fn answer(self, reply: &mut Document, writable: &str, set: &str, address: &str) {
        for field in IDENTITY {
            reply.remove(field);
        }
        let is_writable = matches!(self, Self::Standalone | Self::Mongos | Self::OtherPrimary);
        reply.insert(writable, is_writable);
        match self {
            Self::Standalone => return,
            Self::Mongos => {
                reply.insert("msg", "isdbgrid");
                return;
            }
            Self::Ghost => {
                reply.extend(doc! { "secondary": false, "isreplicaset": true });
                return;
            }
            _ => {}
        }
        let set = if matches!(self, Self::OtherSet | Self::OtherPrimary) { Self::SET } else { set };
        let me = if self == Self::Renamed { "renamed.test:27017" } else { address };
        reply.extend(doc! {
            "setName": set,
            "setVersion": 1,
            "hosts": [address],
            "me": me,
            "secondary": matches!(self, Self::Renamed | Self::OtherSet),
        });
        match self {
            Self::Arbiter => drop(reply.insert("arbiterOnly", true)),
            Self::Hidden => drop(reply.insert("hidden", true)),
            _ => {}
        }
    }
}

impl fmt::Display for Action {
    /// Writes the line described by [`Action::SYNTAX`]. The line cannot be parsed if a name or tag
    /// contains a space or a separator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StepDown { period } => write!(f, "stepdown {}", seconds(*period)),
            Self::StepUp(target) => write!(f, "stepup {}", Word(*target)),
            Self::ReplSetFreeze(target, period) => {
                write!(f, "replfreeze {} {}", Word(*target), seconds(*period))
            }
            Self::Kill(target) => write!(f, "kill {}", Word(*target)),
            Self::Shutdown(target) => write!(f, "shutdown {}", Word(*target)),
            Self::Restart(target) => write!(f, "restart {}", Word(*target)),
            Self::Freeze(target) => write!(f, "freeze {}", Word(*target)),
            Self::Thaw(target) => write!(f, "thaw {}", Word(*target)),
            Self::Partition(a, b) => {
                let [a, b] = [a, b].map(|side| list(side.iter().map(|target| Word(*target))));
                write!(f, "partition {a} {b}")
            }
            Self::Isolate(target) => write!(f, "isolate {}", Word(*target)),
            Self::CutOff(target) => write!(f, "cutoff {}", Word(*target)),
            Self::Heal => f.write_str("heal"),
            Self::SplitBrain => f.write_str("splitbrain"),
            Self::Reconfig(config) => {
                write!(f, "setconfig {}", config.name)?;
                config.members.iter().try_for_each(|member| write_member(f, member))
            }
            Self::Edit(target, edits) => {
                write!(f, "reconfig {}", Word(*target))?;
                edits.iter().try_for_each(|edit| write!(f, " {edit}"))
            }
            Self::Add(member) => write!(f, "add {member}"),
            Self::Remove(target) => write!(f, "remove {}", Word(*target)),
            Self::Maintenance(target, on) => {
                write!(f, "maintenance {} {}", Word(*target), switch(*on))
            }
            Self::Horizon(HorizonPolicy::Close) => f.write_str("horizon close"),
            Self::Horizon(HorizonPolicy::Error) => f.write_str("horizon error"),
            Self::FailPoint(target, fail) => {
                write!(f, "failpoint {} {}", Word(*target), or_off(fail.as_ref().map(fail_command)))
            }
            Self::Exhaust(target, on) => write!(f, "exhaust {} {}", Word(*target), switch(*on)),
            Self::Flood(target, every) => {
                write!(f, "flood {} {}", Word(*target), or_off(every.map(seconds)))
            }
            Self::Lag(target, lag) => write!(f, "lag {} {}", Word(*target), seconds(*lag)),
            Self::Upgrade(target, version) => write!(f, "upgrade {} {version}", Word(*target)),
            Self::Impostor(target, kind) => {
                write!(f, "impostor {} {}", Word(*target), or_off(*kind))
            }
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority(priority) => write!(f, "priority={priority}"),
            Self::Votes(votes) => write!(f, "votes={votes}"),
            Self::Hidden(hidden) => write!(f, "hidden={hidden}"),
            Self::Delay(delay) => write!(f, "delay={}", seconds(*delay)),
            Self::Tags(tags) => {
                write!(
                    f,
                    "tags={}",
                    list(tags.iter().map(|(name, value)| format!("{name}:{value}")))
                )
            }
        }
    }
}

/// Formats a target as one word in the line of an action. Error messages use the `Display` form of
/// `Target` instead.
pub(crate) struct Word(pub(crate) Target);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Target::Member(member) => member.fmt(f),
            Target::Primary => f.write_str("primary"),
            Target::Secondary => f.write_str("secondary"),
        }
    }
}

/// Writes the member's address, and the settings that differ from the defaults.
fn write_member(f: &mut fmt::Formatter<'_>, member: &MemberConfig) -> fmt::Result {
    write!(f, " {}", member.address)?;
    let plain = MemberConfig::new(member.address.clone());
    if member.arbiter {
        f.write_str(";arbiter=true")?;
    }
    let tags: Vec<_> =
        member.tags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    for (differs, edit) in [
        (member.priority.total_cmp(&plain.priority).is_ne(), Edit::Priority(member.priority)),
        (member.votes != plain.votes, Edit::Votes(member.votes)),
        (member.hidden != plain.hidden, Edit::Hidden(member.hidden)),
        (member.delay != plain.delay, Edit::Delay(member.delay)),
        (member.tags != plain.tags, Edit::Tags(tags)),
    ] {
        if differs {
            write!(f, ";{edit}")?;
        }
    }
    Ok(())
}

fn fail_command(fail: &FailCommand) -> String {
    fn word(key: &str, value: Option<impl ToString>) -> Option<String> {
        value.map(|value| format!("{key}={}", value.to_string()))
    }
    let (times, skip) = match fail.mode {
        Mode::AlwaysOn => (None, None),
        Mode::Times(times) => (Some(times), None),
        Mode::Skip(skip) => (None, Some(skip)),
    };
    let words = [
        word("commands", Some(fail.commands.join(","))),
        word("times", times),
        word("skip", skip),
        word("code", fail.error_code),
        fail.close_connection.then(|| "close".to_owned()),
        word("block", fail.block.map(|block| block.as_millis())),
        word("app", fail.app_name.as_ref()),
        word("labels", fail.error_labels.as_ref().map(|labels| labels.join(","))),
        word("writeconcern", fail.write_concern_error),
        word("reply", fail.bad_reply),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Formats a setting that may be turned off.
pub(crate) fn or_off(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "off".to_owned(), |value| value.to_string())
}

fn list(items: impl Iterator<Item: fmt::Display>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

/// Formats a duration in seconds, without trailing zeros.
pub(crate) fn seconds(duration: Duration) -> String {
    let nanos = duration.subsec_nanos();
    if nanos == 0 {
        return duration.as_secs().to_string();
    }
    let text = format!("{}.{nanos:09}", duration.as_secs());
    text.trim_end_matches('0').to_owned()
}
