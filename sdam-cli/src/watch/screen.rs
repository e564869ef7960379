//! Output for terminals.

use std::{fmt::Write, mem, time::Duration};

use sdam_core::{
    address::ServerAddress,
    server::{ServerDescription, ServerType},
    topology::{Departure, DepartureReason, TopologyDescription},
};
use sdam_events::facts::{Fact, Failover};

use super::view::Access;
use crate::{
    terminal::{Palette, Tone, WIDTH, columns, wrap},
    time,
};

#[cfg(test)]
mod tests;

/// The column at which text begins after a time, such as `12:34:56.789Z  `.
const TEXT: usize = 15;
/// The column at which a server's address begins, after the mark that shows its change.
const ADDRESS: usize = 3;
/// The width of the type column, enough for `PossiblePrimary`, the longest type.
const TYPE: usize = 15;
/// The width of the round-trip time column, enough for `9999.99 ms`.
const RTT: usize = 10;
/// The maximum width reserved for addresses.
const LONGEST_ADDRESS: usize = WIDTH - ADDRESS - TYPE - RTT - 4;
/// The maximum number of servers to list. If there are more, only changed ones are shown.
const LIST_LIMIT: usize = 12;

/// Formats topology descriptions and facts about failovers as lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    palette: Palette,
}

/// The mark that shows a server's change, and the changed fields in the specification's terms.
type Change = (char, String);

/// The mark of an unchanged server.
const SAME: char = ' ';

impl Screen {
    pub(super) fn new(palette: Palette) -> Self {
        Self { palette }
    }

    /// Formats a topology at `time` and its changes since `previous`.
    pub(super) fn topology(
        self,
        time: &str,
        previous: Option<&TopologyDescription>,
        new: &TopologyDescription,
        access: Access,
    ) -> String {
        let mut text = self.headline(time, new, access);
        if let Some(error) = new.compatibility_error() {
            self.paragraph(&mut text, Tone::Bad, error);
        }
        let changes = changes(previous, new);
        let left = left(previous, new);
        let addresses = changes.iter().map(|(_, server)| &server.address);
        let lengths = addresses
            .chain(left.iter().map(|(address, _)| *address))
            .map(|address| columns(address.as_str()));
        let width = lengths.max().unwrap_or_default().min(LONGEST_ADDRESS);
        let brief = previous.is_some() && new.servers().len() > LIST_LIMIT;
        for (change, server) in &changes {
            if !brief || change.0 != SAME {
                self.server(&mut text, change, server, width);
            }
        }
        if brief {
            let same = changes.iter().filter(|(change, _)| change.0 == SAME);
            let rest = format!("{:ADDRESS$}{}", "", others(same.map(|(_, server)| *server)));
            line(&mut text, self.palette.paint(Tone::Faint, rest));
        }
        for (address, reason) in &left {
            self.left(&mut text, address, *reason, width);
        }
        text
    }

    /// Formats the facts that follow from a change at `time`. Returns an empty string if the change
    /// itself already shows them.
    pub(super) fn facts(self, time: &str, facts: &[Fact]) -> String {
        let mut text = String::new();
        let has_failover = facts
            .iter()
            .any(|fact| matches!(fact, Fact::OutageStarted(_) | Fact::FailoverEnded(_)));
        for fact in facts {
            match fact {
                Fact::OutageStarted(outage) => {
                    let words = match &outage.lost {
                        Some(primary) => format!("primary lost: {primary}"),
                        None => "no writable server left".to_owned(),
                    };
                    text += &self.note(time, Tone::Bad, &words);
                }
                Fact::FailoverEnded(failover) => {
                    text += &self.note(time, Tone::Good, &describe(failover));
                }
                Fact::FailoverExplained(failover) => {
                    text += &self.note(time, Tone::Good, &explain(failover));
                }
                Fact::PrimaryChanged { new: Some(new), .. } if !has_failover => {
                    text += &self.note(time, Tone::Good, &format!("primary found: {new}"));
                }
                _ => {}
            }
        }
        text
    }

    /// Formats a remark at `time`.
    pub(super) fn note(self, time: &str, tone: Tone, words: &str) -> String {
        let mut text = String::new();
        let mut time = time;
        for words in wrap(words, TEXT) {
            // Indent a string that cannot be wrapped, such as a connection string, by fewer
            // columns.
            let indent =
                if TEXT + columns(&words) > WIDTH && time.is_empty() { ADDRESS } else { TEXT };
            let time = self.palette.paint(Tone::Faint, format!("{:indent$}", mem::take(&mut time)));
            line(&mut text, format_args!("{time}{}", self.palette.paint(tone, words)));
        }
        text
    }

    fn headline(self, time: &str, new: &TopologyDescription, access: Access) -> String {
        let mut text = String::new();
        let time = self.palette.paint(Tone::Faint, format!("{time:TEXT$}"));
        let mut name = new.topology_type().to_string();
        if let Some(set_name) = new.set_name() {
            name = format!("{name} {set_name}");
        }
        let name = self.palette.paint(Tone::Strong, name);
        let access = self.palette.paint(access.tone(), access);
        line(&mut text, format_args!("{time}{name}, {access}"));
        text
    }

    fn server(
        self,
        text: &mut String,
        (mark, news): &Change,
        server: &ServerDescription,
        width: usize,
    ) {
        let tone = if *mark == SAME { Tone::Normal } else { Tone::Strong };
        let name = format!(" {mark} {:width$}", server.address);
        let name = self.palette.paint(tone, name);
        let role = format!("{:TYPE$}", server.server_type);
        let role = self.palette.paint(tone_of(server), role);
        let rtt = server
            .rtt
            .map_or("-".to_owned(), |rtt| format!("{:.2} ms", rtt.average.as_secs_f64() * 1e3));
        let taken = ADDRESS + width + TYPE + RTT + 4;
        if taken + 2 + columns(news) <= WIDTH {
            let news = self.palette.paint(Tone::Faint, news);
            line(text, format_args!("{name}  {role}  {rtt:>RTT$}  {news}"));
        } else {
            line(text, format_args!("{name}  {role}  {rtt:>RTT$}"));
            self.paragraph(text, Tone::Faint, news);
        }
        if let Some(error) = &server.error {
            self.paragraph(text, Tone::Bad, &format!("{error:#}"));
        }
    }

    fn left(
        self,
        text: &mut String,
        address: &ServerAddress,
        reason: Option<&DepartureReason>,
        width: usize,
    ) {
        let (tone, words) = match reason {
            Some(reason) if reason.is_mistake() => (Tone::Bad, reason.to_string()),
            Some(reason) => (Tone::Faint, reason.to_string()),
            None => (Tone::Faint, "removed".to_owned()),
        };
        let name = self.palette.paint(Tone::Faint, format!(" - {address:width$}"));
        if ADDRESS + width + 2 + columns(&words) <= WIDTH {
            line(text, format_args!("{name}  {}", self.palette.paint(tone, words)));
        } else {
            line(text, name);
            self.paragraph(text, tone, &words);
        }
    }

    /// Formats `words` on separate lines below the server that they describe.
    fn paragraph(self, text: &mut String, tone: Tone, words: &str) {
        for words in wrap(words, ADDRESS + 2) {
            let words = self.palette.paint(tone, words);
            line(text, format_args!("{:1$}{words}", "", ADDRESS + 2));
        }
    }
}

/// Returns the servers of `new`, in order, each with its change since `previous`.
fn changes<'t>(
    previous: Option<&'t TopologyDescription>,
    new: &'t TopologyDescription,
) -> Vec<(Change, &'t ServerDescription)> {
    let change = |server: &ServerDescription| match previous {
        None => (SAME, String::new()),
        Some(previous) => match previous.server(&server.address) {
            None => ('+', String::new()),
            Some(before) if **before == *server => (SAME, String::new()),
            Some(before) => ('~', news(before, server)),
        },
    };
    let servers = new.servers().iter();
    servers.map(|server| (change(server), &**server)).collect()
}

/// Returns the servers removed since `previous`. Without `previous`, returns all removed servers
/// that `new` remembers.
fn left<'t>(
    previous: Option<&'t TopologyDescription>,
    new: &'t TopologyDescription,
) -> Vec<(&'t ServerAddress, Option<&'t DepartureReason>)> {
    let departures = new.departures();
    let Some(previous) = previous else {
        let shown = |it: &'t Departure| (&it.address, Some(&it.reason));
        return departures.iter().map(shown).collect();
    };
    let servers = previous.servers().iter().map(|server| &server.address);
    let gone = servers.filter(|address| new.server(address).is_none());
    gone.map(|address| {
        let departure = departures.iter().rfind(|it| it.address == *address);
        (address, departure.map(|it| &it.reason))
    })
    .collect()
}

/// The maximum number of members to name in a change.
const MAX_CHANGES: usize = 4;
/// The maximum length of changed tags, in characters.
const MAX_TAGS: usize = 60;

/// Describes the changed fields of a server.
fn news(before: &ServerDescription, now: &ServerDescription) -> String {
    if before.server_type != now.server_type {
        return format!("was {}", before.server_type);
    }
    // The topology version changes together with all other fields, so it is mentioned only if
    // nothing else has changed.
    changed_fields(before, now).unwrap_or_else(|| "new topologyVersion".to_owned())
}

/// Describes the changed fields of a server other than its type and topologyVersion.
pub(crate) fn changed_fields(
    before: &ServerDescription,
    now: &ServerDescription,
) -> Option<String> {
    let mut news = Vec::new();
    if before.primary != now.primary {
        let primary = now.primary.as_ref().map_or("none", ServerAddress::as_str);
        news.push(format!("primary: {primary}"));
    }
    let changes = [
        ("setName", before.set_name != now.set_name),
        ("electionId", before.election.election_id != now.election.election_id),
        ("me", before.me != now.me),
        ("wire versions", before.wire_versions != now.wire_versions),
        (
            "logicalSessionTimeoutMinutes",
            before.logical_session_timeout_minutes != now.logical_session_timeout_minutes,
        ),
        ("error", before.error != now.error),
    ];
    let names = changes.into_iter().filter(|(_, changed)| *changed);
    news.extend(names.map(|(name, _)| format!("new {name}")));
    if before.election.set_version != now.election.set_version {
        let version = |version: Option<i64>| version.map_or("none".to_owned(), |it| it.to_string());
        let (old, new) = (version(before.election.set_version), version(now.election.set_version));
        news.push(format!("setVersion {old} > {new}"));
    }
    news.extend(difference("hosts", &before.hosts, &now.hosts));
    news.extend(difference("passives", &before.passives, &now.passives));
    news.extend(difference("arbiters", &before.arbiters, &now.arbiters));
    if before.tags != now.tags {
        let tags: String = now.tags.to_string().chars().take(MAX_TAGS).collect();
        news.push(format!("tags now {tags}"));
    }
    (!news.is_empty()).then(|| news.join(", "))
}

/// Describes which members were added to the list called `list` and which were removed.
fn difference(list: &str, before: &[ServerAddress], now: &[ServerAddress]) -> Option<String> {
    let added = now.iter().filter(|own| !before.contains(own)).map(|own| format!("+{own}"));
    let removed = before.iter().filter(|own| !now.contains(own)).map(|own| format!("-{own}"));
    let mut changes: Vec<_> = added.chain(removed).collect();
    let more = changes.len().saturating_sub(MAX_CHANGES);
    changes.truncate(MAX_CHANGES);
    changes.extend((more > 0).then(|| format!("and {more} more")));
    (!changes.is_empty()).then(|| format!("{list} {}", changes.join(" ")))
}

pub(super) fn tone_of(server: &ServerDescription) -> Tone {
    match server.server_type {
        writable if writable.is_writable() => Tone::Good,
        ServerType::RsSecondary => Tone::Fair,
        ServerType::Unknown if server.error.is_some() => Tone::Bad,
        ServerType::Unknown | ServerType::PossiblePrimary => Tone::Faint,
        _useless => Tone::Doubtful,
    }
}

/// Formats the number of servers of each type.
fn others<'t>(servers: impl Iterator<Item = &'t ServerDescription>) -> String {
    let mut counts: Vec<(ServerType, usize)> = Vec::new();
    for server in servers {
        match counts.iter_mut().find(|(of, _)| *of == server.server_type) {
            Some((_, count)) => *count += 1,
            None => counts.push((server.server_type, 1)),
        }
    }
    let counts = counts.iter().map(|(of, count)| format!("{count} {of}"));
    format!("unchanged: {}", counts.collect::<Vec<_>>().join(", "))
}

pub(super) fn describe(failover: &Failover) -> String {
    time::describe(failover, seconds)
}

/// Describes a failover whose cause the old primary reported only after the new one was known.
pub(super) fn explain(failover: &Failover) -> String {
    format!("{}: {}", describe(failover), time::cause(&failover.outage, seconds))
}

/// Formats a duration in seconds, with two decimals or, if it is too short for that, with more.
fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 0.1 { format!("{seconds:.3} s") } else { format!("{seconds:.2} s") }
}

/// Appends `words` as a line, without trailing spaces.
fn line(text: &mut String, words: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{words}");
    text.truncate(text.trim_end_matches(' ').len());
    text.push('\n');
}
