//! The events of a recording: their descriptions, and the table of them.

use std::{borrow::Cow, collections::HashMap, time::Duration};

use sdam_core::{
    Joined,
    address::ServerAddress,
    deployment::Input,
    error::ErrorKind,
    event::{Event, EventKind},
    ids::ServerId,
    server::{ServerDescription, ServerType},
    topology::TopologyDescription,
};

use super::{
    page::{self, text},
    timeline::{Row, Timeline},
    verdict::nanos,
};
use crate::watch::changed_fields;

/// The maximum number of rows in the table.
const MAX_ROWS: usize = 2000;

/// The kinds that are left out, one after another, if there are too many rows.
const MINOR: [Kind; 3] = [Kind::Selection, Kind::HeartbeatFailed, Kind::Operation];

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
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
            EventKind::ConfigWarning(warning) => {
                Self::new(Kind::Set, Subject::Set, warning.to_string())
            }
            EventKind::SrvHostsIgnored { name, domain, hosts } => {
                let hosts = Joined(&**hosts, ", ");
                let text =
                    format!("{name} names hosts outside of {domain}, which are ignored: {hosts}");
                Self::new(Kind::Set, Subject::Set, text)
            }
            EventKind::SrvLookupFailed { name, failure, .. } => {
                let text = format!("{name} could not be looked up: {failure:#}");
                Self::new(Kind::Set, Subject::Set, text)
            }
            EventKind::EventsDropped { total } => {
                let text = format!("{total} events so far are missing from the recording");
                Self::new(Kind::Set, Subject::Set, text)
            }
            EventKind::ServerOpening { address, .. } => {
                Self::new(Kind::Set, of(address), "is monitored from now on")
            }
            EventKind::ServerClosed { address, reason, .. } => {
                Self::new(Kind::Set, of(address), reason.to_string())
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                Self::new(Kind::Server, of(&new.address), server_change(previous, new))
            }
            EventKind::ServerUnusable { address, obstacle, .. } => {
                Self::new(Kind::Server, of(address), obstacle.to_string())
            }
            EventKind::ServerSuspected { address, silence, .. } => {
                let text = format!("silent for {:.1} s while others answer", silence.as_secs_f64());
                Self::new(Kind::Server, of(address), text)
            }
            EventKind::ServerSuspicionEnded { address, answered: true, .. } => {
                Self::new(Kind::Server, of(address), "answers again")
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

/// One row of the table: an event, or several equal events of one server.
struct Entry<'t> {
    row: &'t Row,
    count: u64,
    /// The time of the last of these events.
    last: u64,
}

/// Returns the section with the table. Answered heartbeats are only counted.
pub(super) fn section(timeline: &Timeline, clock: &impl Fn(u64) -> String) -> String {
    let mut entries = folded(&timeline.rows);
    let mut hidden = Vec::new();
    let mut hide = |count: u64, what: &str| {
        if count > 0 {
            hidden.push(format!("{count} {what}"));
        }
    };
    hide(timeline.lanes.iter().map(|lane| lane.succeeded).sum(), "answered heartbeats");
    for kind in MINOR {
        if entries.len() > MAX_ROWS {
            let minor = entries.extract_if(.., |entry| entry.row.kind == kind);
            hide(
                minor.map(|entry| entry.count).sum(),
                &format!("of the kind \u{201c}{kind}\u{201d}"),
            );
        }
    }
    let end = entries.split_off(entries.len() - entries.len().min(MAX_ROWS / 2));
    let middle = entries.split_off(entries.len().min(MAX_ROWS / 2));
    let cut = match middle.last() {
        None => String::new(),
        Some(last) => {
            hide(middle.iter().map(|entry| entry.count).sum(), "in the middle");
            format!(
                "<tr class=\"cut\"><td colspan=\"5\">events up to {} are left out\n",
                clock(last.last)
            )
        }
    };
    let show = |entries: Vec<Entry<'_>>| -> String {
        entries.iter().map(|entry| entry.html(timeline, clock)).collect()
    };
    let rows = [show(entries), cut, show(end)].concat();
    let note = match &*hidden {
        [] => String::new(),
        hidden => format!("<p class=\"note\">Not listed: {}.\n", hidden.join(", ")),
    };
    let table = page::table("events", &["time", "event", "server", "what", "line"], &rows);
    format!("<section>\n<h2>Events</h2>\n{table}{note}</section>\n")
}

/// Combines an event with the preceding one of the same server if both say the same.
fn folded(rows: &[Row]) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut last: HashMap<Option<usize>, usize> = HashMap::new();
    for row in rows {
        let before = last.get(&row.lane).and_then(|index| entries.get_mut(*index));
        match before {
            Some(entry) if entry.row.kind == row.kind && entry.row.text == row.text => {
                entry.count += 1;
                entry.last = row.at;
            }
            _ => {
                last.insert(row.lane, entries.len());
                entries.push(Entry { row, count: 1, last: row.at });
            }
        }
    }
    entries
}

impl Entry<'_> {
    fn html(&self, timeline: &Timeline, clock: &impl Fn(u64) -> String) -> String {
        let row = self.row;
        let server = row.lane.and_then(|lane| timeline.lanes.get(lane));
        let time = row.time.filter(|_| self.count == 1).map(nanos);
        let words = match time {
            Some(time) if row.kind == Kind::HeartbeatFailed => {
                format!("after {time}: {}", row.text)
            }
            Some(time) => format!("{} in {time}", row.text),
            None => row.text.clone(),
        };
        let repeated = match self.count {
            1 => String::new(),
            count => format!(
                " <span class=\"more\">{count} times until {}</span>",
                clock(self.last).trim_end_matches(" UTC")
            ),
        };
        let class = if row.kind.is_problem() { " class=\"problem\"" } else { "" };
        let cells = [
            clock(row.at).trim_end_matches(" UTC").to_owned(),
            row.kind.to_string(),
            server.map_or_else(String::new, |lane| text(&lane.address)),
            text(&words) + &repeated,
            row.line.to_string(),
        ];
        let cells: String = cells.iter().flat_map(|cell| ["<td>", cell]).collect();
        format!("<tr{class}>{cells}\n")
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
