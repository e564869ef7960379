//! Descriptions of the events of a recording.

use std::{borrow::Cow, time::Duration};

use sdam_core::{
    address::ServerAddress,
    deployment::Input,
    error::ErrorKind,
    event::{Event, EventKind},
    ids::ServerId,
    server::{ServerDescription, ServerType},
    topology::TopologyDescription,
};

use crate::watch::changed_fields;

/// The kind of an event.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Kind {
    /// The topology's type, primary or members changed.
    Set,
    /// A server's type or another property changed.
    Server,
    Heartbeat,
    #[strum(serialize = "heartbeat failed")]
    HeartbeatFailed,
    Pool,
    #[strum(serialize = "pool cleared")]
    PoolCleared,
    Selection,
    /// A server selection failed, or an operation reported an error.
    #[strum(serialize = "operation failed")]
    Operation,
}

impl Kind {
    /// Returns the name, for logs, records and counters.
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Kind {
    /// Returns whether events of this kind indicate a problem.
    pub(super) fn is_problem(self) -> bool {
        matches!(self, Self::HeartbeatFailed | Self::PoolCleared | Self::Operation)
    }
}

/// The server that an event concerns.
pub(super) enum Subject<'e> {
    Set,
    Address(&'e str),
    Id(ServerId),
}

/// A description of an event.
pub(super) struct Words<'e> {
    pub(super) kind: Kind,
    pub(super) subject: Subject<'e>,
    pub(super) text: Cow<'static, str>,
    /// The duration of the heartbeat or the selection.
    pub(super) time: Option<Duration>,
}

impl<'e> Words<'e> {
    fn new(kind: Kind, subject: Subject<'e>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, subject, text: text.into(), time: None }
    }

    fn timed(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// Describes `event`. Returns `None` if another event already describes the same change.
    pub(super) fn of(event: &'e Event) -> Option<Self> {
        Some(match &event.kind {
            EventKind::TopologyOpening => Self::new(Kind::Set, Subject::Set, "monitoring starts"),
            EventKind::TopologyDescriptionChanged { previous, new } => {
                Self::new(Kind::Set, Subject::Set, set_change(previous, new)?)
            }
            EventKind::MembersIgnored { ignored, limit } => {
                let text = format!("{ignored} members are ignored: the limit is {limit}");
                Self::new(Kind::Set, Subject::Set, text)
            }
            EventKind::TopologyEmptied => Self::new(Kind::Set, Subject::Set, "has no server left"),
            EventKind::ServerOpening { address, .. } => {
                Self::new(Kind::Set, of(address), "is monitored from now on")
            }
            EventKind::ServerClosed { address, reason, .. } => {
                Self::new(Kind::Set, of(address), reason.to_string())
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                Self::new(Kind::Server, of(&new.address), server_change(previous, new))
            }
            EventKind::PoolReady { address, .. } => Self::new(Kind::Pool, of(address), "ready"),
            EventKind::PoolCleared { address, clear, .. } => {
                let (generation, cause) = (clear.generation.as_u64(), &clear.cause);
                let text = format!("generation {generation} from now on: {cause:#}");
                Self::new(Kind::PoolCleared, of(address), text)
            }
            EventKind::Input(input) => return of_input(&input.input),
            kind => return of_operation(kind),
        })
    }
}

fn of(address: &ServerAddress) -> Subject<'_> {
    Subject::Address(address.as_str())
}

fn of_operation(kind: &EventKind) -> Option<Words<'_>> {
    let (words, time) = match kind {
        EventKind::ServerHeartbeatSucceeded { heartbeat, duration, .. } => {
            let mode = if heartbeat.awaited { "streamed" } else { "asked" };
            let words = Words::new(Kind::Heartbeat, of(&heartbeat.address), mode);
            (words, duration)
        }
        EventKind::ServerHeartbeatFailed { heartbeat, duration, failure } => {
            let server = of(&heartbeat.address);
            let words = Words::new(Kind::HeartbeatFailed, server, format!("{failure:#}"));
            (words, duration)
        }
        EventKind::ServerSelectionWaiting { selection, .. } => {
            let text = format!("{} waits for a server", selection.selector);
            return Some(Words::new(Kind::Selection, Subject::Set, text));
        }
        EventKind::ServerSelectionSucceeded { selection, address, duration, .. } => {
            let selector = selection.selector.to_string();
            (Words::new(Kind::Selection, of(address), selector), duration)
        }
        EventKind::ServerSelectionFailed { selection, failure, duration, .. } => {
            let text = format!("selection {}: {failure}", selection.selector);
            let words = Words::new(Kind::Operation, Subject::Set, text);
            (words, duration)
        }
        _ => return None,
    };
    Some(words.timed(*time))
}

fn of_input(input: &Input) -> Option<Words<'_>> {
    match input {
        Input::Error { server, report } => {
            let error = &report.error;
            let cause = match error.kind() {
                // If the error in the reply has an effect, later events describe that effect.
                _ if error.reply().is_some() => "an error reply".to_owned(),
                ErrorKind::Network => format!("network error: {}", error.message()),
                ErrorKind::Timeout => format!("timeout: {}", error.message()),
                ErrorKind::Protocol => format!("protocol error: {}", error.message()),
                _ => format!("authentication failed: {}", error.message()),
            };
            let text = format!("reported by an operation at {}: {cause}", error.stage());
            Some(Words::new(Kind::Operation, Subject::Id(*server), text))
        }
        Input::Deserted { server } => {
            let text = "the checks of the server ended unexpectedly";
            Some(Words::new(Kind::HeartbeatFailed, Subject::Id(*server), text))
        }
        _ => None,
    }
}

/// Describes changes that concern the whole topology.
fn set_change(previous: &TopologyDescription, new: &TopologyDescription) -> Option<String> {
    let (old_type, new_type) = (previous.topology_type(), new.topology_type());
    let primary = |of: &TopologyDescription| of.primary().map(|server| server.address.to_string());
    let (old, new) = (primary(previous), primary(new));
    let mut changes = Vec::new();
    if old_type != new_type {
        changes.push(format!("{old_type} \u{2192} {new_type}"));
    }
    if old != new {
        let [old, new] = [old, new].map(|name| name.unwrap_or_else(|| "none".to_owned()));
        changes.push(format!("primary {old} \u{2192} {new}"));
    }
    (!changes.is_empty()).then(|| changes.join("; "))
}

fn server_change(previous: &ServerDescription, new: &ServerDescription) -> String {
    let error = |of: &ServerDescription| of.error.as_ref().map(|error| format!("{error:#}"));
    if previous.server_type != new.server_type {
        let types = format!("{} \u{2192} {}", previous.server_type, new.server_type);
        return match error(new) {
            Some(error) => format!("{types}: {error}"),
            None => types,
        };
    }
    if new.server_type == ServerType::Unknown && previous.error != new.error {
        return error(new).unwrap_or_else(|| "no error any more".to_owned());
    }
    changed_fields(previous, new).unwrap_or_else(|| "new topologyVersion".to_owned())
}
