//! Output of events and snapshots, and the verdict on them: whether the deployment can be read from
//! and written to, and whether enough is known to decide that.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use sdam_core::{
    address::ServerAddress,
    event::{Event, EventKind},
    options::Options,
    read_preference::{ReadMode, ReadPreference},
    server::{ServerDescription, ServerType},
    time::UnixTime,
    topology::TopologyDescription,
};
use sdam_events::facts::Facts;
use sdam_select::{readable::accepts_reads, settings::Settings};
use sdam_transport::system::wall;

use super::screen::Screen;
use crate::{
    exit::Exit,
    json,
    output::Console,
    terminal::{Tone, json_line},
    time::time_of_day,
};

/// The console, and the state needed to format its output.
pub(super) struct View<O, R> {
    console: Console<O, R>,
    json: bool,
    /// True if the deployment is simulated. Each JSON object says so; text output has a note
    /// instead.
    pub(super) simulated: bool,
    screen: Screen,
    facts: Facts,
    failures: Failures,
    settings: Settings,
}

impl<O: Write, R: Write> View<O, R> {
    pub(super) fn new(console: Console<O, R>, json: bool, options: &Options) -> Self {
        Self {
            screen: Screen::new(console.palette),
            console,
            json,
            simulated: false,
            facts: Facts::new(),
            failures: Failures::default(),
            settings: Settings::new(options),
        }
    }

    /// Shows the changes that an event causes; most events cause none.
    pub(super) fn event(&mut self, event: &Event) -> io::Result<()> {
        let facts = self.facts.observe(event);
        let EventKind::TopologyDescriptionChanged { previous, new } = &event.kind else {
            return Ok(());
        };
        let time = event.time.unwrap_or_else(wall);
        if self.json {
            return self.print_json(time, new);
        }
        let (time, access) = (time_of_day(time), Access::of(new, &self.settings));
        let Some(repeated) = self.failures.observe(previous, new) else {
            return Ok(());
        };
        if repeated > 0 {
            let words = format!("the failures above came {repeated} more times");
            self.print(&self.screen.note(&time, Tone::Faint, &words))?;
        }
        let change = self.screen.topology(&time, Some(previous), new, access);
        let facts = self.screen.facts(&time, &facts);
        self.print(&format!("{change}{facts}"))
    }

    /// Shows a whole topology.
    pub(super) fn snapshot(&mut self, topology: &TopologyDescription) -> io::Result<Exit> {
        let access = Access::of(topology, &self.settings);
        if self.json {
            self.print_json(wall(), topology)?;
        } else {
            self.print(&self.screen.topology(&now(), None, topology, access))?;
        }
        Ok(access.exit())
    }

    /// Prints a note to standard output or, if the output is JSON, to standard error.
    pub(super) fn note(&mut self, words: &str) -> io::Result<()> {
        if self.json {
            return writeln!(self.console.remarks, "{words}");
        }
        self.print(&self.screen.note(&now(), Tone::Strong, words))
    }

    /// Prints a warning that the output is incomplete.
    pub(super) fn warn(&mut self, words: &str) -> io::Result<()> {
        writeln!(self.console.remarks, "warning: {words}")
    }

    pub(super) fn remarks(&mut self) -> &mut R {
        &mut self.console.remarks
    }

    /// Prints a topology, and the time `at` at which it was in this state.
    fn print_json(&mut self, at: UnixTime, topology: &TopologyDescription) -> io::Result<()> {
        let mut json = json::snapshot(topology);
        json["at"] = at.to_string().into();
        if self.simulated {
            json["simulated"] = true.into();
        }
        self.print(&format!("{}\n", json_line(&json)))
    }

    /// Prints `text` and flushes the output, because a user may be watching.
    fn print(&mut self, text: &str) -> io::Result<()> {
        self.console.output.write_all(text.as_bytes())?;
        self.console.output.flush()
    }
}

/// The failures of unavailable servers that have been shown. They are not shown again, because a
/// server that alternates between two errors would fill the screen.
#[derive(Debug, Default)]
struct Failures {
    shown: BTreeSet<(ServerAddress, String)>,
    repeated: u64,
}

impl Failures {
    /// Returns `None` if the change from `previous` to `new` consists of failures that were already
    /// shown. Otherwise, returns the number of changes that were omitted since the last shown
    /// change.
    fn observe(
        &mut self,
        previous: &TopologyDescription,
        new: &TopologyDescription,
    ) -> Option<u64> {
        let mut is_repeated = false;
        let mut is_new = previous.is_compatible() != new.is_compatible()
            || previous.topology_type() != new.topology_type()
            || previous.servers().len() != new.servers().len();
        for server in new.servers() {
            let address = &server.address;
            if server.server_type.is_available() {
                self.shown.retain(|(own, _)| own != address);
            }
            if previous.server(address) == Some(server) {
                continue;
            }
            let was_lost =
                previous.server(address).is_some_and(|own| !own.server_type.is_available());
            let failure = server.error.as_ref().filter(|_| !server.server_type.is_available());
            is_repeated = true;
            is_new |= match failure {
                Some(error) => {
                    self.shown.insert((address.clone(), error.message().to_owned())) || !was_lost
                }
                None => true,
            };
        }
        if is_new || !is_repeated {
            return Some(std::mem::take(&mut self.repeated));
        }
        self.repeated += 1;
        None
    }
}

/// Returns the current time of day.
fn now() -> String {
    time_of_day(wall())
}

/// The kinds of access that a deployment allows, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub enum Access {
    /// There is a writable server.
    #[strum(serialize = "writable")]
    Writable,
    /// There are only readable servers.
    #[strum(serialize = "readable only")]
    ReadableOnly,
    /// There is no usable server, or the client is incompatible with one of the servers.
    #[strum(serialize = "neither readable nor writable")]
    Neither,
}

impl Access {
    /// Evaluates `topology`, which is readable if any of its members is.
    pub fn of(topology: &TopologyDescription, settings: &Settings) -> Self {
        let nearest = ReadPreference::new(ReadMode::Nearest);
        if topology.accepts_writes() {
            Self::Writable
        } else if accepts_reads(topology, settings, &nearest) {
            Self::ReadableOnly
        } else {
            Self::Neither
        }
    }

    /// Returns the exit code of `--once`.
    pub fn exit(self) -> Exit {
        match self {
            Self::Writable => Exit::SUCCESS,
            Self::ReadableOnly => Exit::READABLE_ONLY,
            Self::Neither => Exit::NEITHER,
        }
    }

    pub(super) fn tone(self) -> Tone {
        match self {
            Self::Writable => Tone::Good,
            Self::ReadableOnly => Tone::Doubtful,
            Self::Neither => Tone::Bad,
        }
    }
}

/// Returns whether the state of all servers is known, so that waiting longer would reveal only
/// later changes.
///
/// This is true if every server has answered or failed and at least one has answered, because then
/// no other member can turn out to be the primary. If no server has answered, they may still be
/// starting; the timeout limits the wait. An empty topology counts as known, too, because it stays
/// empty.
pub fn is_known(topology: &TopologyDescription) -> bool {
    let servers = topology.servers();
    let answered = servers.iter().any(|server| server.server_type.is_available());
    servers.iter().all(|server| has_replied_or_failed(server)) && (answered || servers.is_empty())
}

/// Returns whether the server has answered or failed.
fn has_replied_or_failed(server: &ServerDescription) -> bool {
    server.last_update_time.is_some() || server.server_type == ServerType::LoadBalancer
}

/// The maximum number of servers to name.
const MAX_NAMED: usize = 10;

/// Explains which replies are missing for a topology to count as known.
pub(super) fn missing(topology: &TopologyDescription) -> String {
    let unheard = topology.servers().iter().filter(|server| !has_replied_or_failed(server));
    let unheard: Vec<&str> = unheard.map(|server| server.address.as_str()).collect();
    let (named, others) = unheard.split_at(unheard.len().min(MAX_NAMED));
    let named = named.join(", ");
    match (unheard.len(), others.len()) {
        (0, _) => "no server has answered in time".to_owned(),
        (_, 0) => format!("no reply or failure in time from {named}"),
        (_, more) => {
            format!("no reply or failure in time from {named} and {more} others")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdam_core::{
        error::{Error, ErrorKind, Stage},
        ids::{ObjectId, ServerId},
        time::Instant,
        topology::TopologyType,
    };
    use serde_json::Value;

    use super::*;
    use crate::terminal::Palette;

    #[test]
    fn failures_that_alternate_are_shown_once_each_until_something_changes() {
        let topology = |reason: Option<&str>| {
            let (id, address) = (ServerId::from_u64(1), ServerAddress::new("a", 1));
            let mut server = ServerDescription::unknown(id, address);
            match reason {
                Some(reason) => server.error = Some(Error::network(Stage::Connect, reason)),
                None => server.server_type = ServerType::Standalone,
            }
            TopologyDescription::new(TopologyType::Single, [server])
        };
        let mut failures = Failures::default();
        let reasons = [None, Some("refused"), Some("reset"), Some("refused"), Some("reset"), None];
        let seen = reasons
            .windows(2)
            .chain([&reasons[..2]])
            .map(|pair| failures.observe(&topology(pair[0]), &topology(pair[1])));
        assert_eq!(seen.collect::<Vec<_>>(), [Some(0), Some(0), None, None, Some(2), Some(0)]);
    }

    /// The machine is suspended between the two events. The client's clock does not count this
    /// time.
    #[test]
    fn each_change_is_shown_with_the_time_of_its_event() {
        let times = ["2024-01-01T10:00:00.000Z", "2024-01-01T18:30:00.000Z"];
        let shown = |json| {
            let mut output = Vec::new();
            let console =
                Console { output: &mut output, remarks: io::sink(), palette: Palette::Plain };
            let options = Options::parse("mongodb://a").unwrap();
            let mut view = View::new(console, json, &options);
            for (millis, time) in (0..).zip(times) {
                let kind = EventKind::TopologyDescriptionChanged {
                    previous: Arc::default(),
                    new: Arc::default(),
                };
                let at = Instant::from_millis(millis);
                let mut event = Event::new(millis, at, ObjectId::default(), kind);
                event.time = Some(time.parse().unwrap());
                view.event(&event).unwrap();
            }
            String::from_utf8(output).unwrap()
        };
        let lines = shown(true);
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        assert_eq!(lines.map(|line| line["at"].clone()).collect::<Vec<_>>(), times);
        let text = shown(false);
        let text: Vec<_> = text.lines().map(|line| &line[..13]).collect();
        assert_eq!(text, ["10:00:00.000Z", "18:30:00.000Z"]);
    }

    /// Returns the description of a server after a check, which failed if `server_type` is `None`.
    fn checked(port: u16, server_type: Option<ServerType>) -> ServerDescription {
        let (id, address) = (ServerId::from_u64(u64::from(port)), ServerAddress::new("h", port));
        let error = Error::new(ErrorKind::Network, Stage::Connect, "refused");
        let mut server = ServerDescription::failed(id, address, error, Instant::EPOCH);
        if let Some(server_type) = server_type {
            server.server_type = server_type;
            server.error = None;
        }
        server
    }

    fn unchecked(port: u16) -> ServerDescription {
        ServerDescription::unknown(ServerId::from_u64(0), ServerAddress::new("h", port))
    }

    #[test]
    fn a_topology_is_known_when_one_server_replied_and_all_others_replied_or_failed() {
        let check = |servers: Vec<ServerDescription>, expected: bool| {
            let topology = TopologyDescription::new(TopologyType::ReplicaSetNoPrimary, servers);
            assert_eq!(is_known(&topology), expected, "{topology}");
        };
        let secondary = Some(ServerType::RsSecondary);
        check(vec![], true);
        check(vec![unchecked(1)], false);
        check(vec![checked(1, None)], false);
        check(vec![checked(1, secondary)], true);
        check(vec![checked(1, secondary), unchecked(2)], false);
        check(vec![checked(1, secondary), checked(2, None)], true);
        check(vec![checked(1, Some(ServerType::RsGhost))], true);
    }

    #[test]
    fn up_to_ten_silent_servers_are_named() {
        let check = |count: u16, end: &str| {
            let servers: Vec<_> = (10..10 + count).map(unchecked).collect();
            let topology = TopologyDescription::new(TopologyType::ReplicaSetNoPrimary, servers);
            let words = missing(&topology);
            assert!(words.ends_with(end), "{words}");
        };
        check(0, "no server has answered in time");
        check(2, "in time from h:10, h:11");
        check(10, ", h:18, h:19");
        check(50, ", h:18, h:19 and 40 others");
    }
}
