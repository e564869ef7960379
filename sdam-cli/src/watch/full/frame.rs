//! Draws a frame of the screen, and decides how much space each of its parts gets.

mod alerts;
mod details;
mod head;
mod table;

use std::ops::Deref;

use ratatui::layout::Rect;
use sdam_core::{
    address::{DEFAULT_PORT, ServerAddress},
    time::Instant,
    topology::TopologyDescription,
};
use sdam_select::explain::Explanation;

use self::table::Row;
pub(super) use self::table::ordered;
use super::{
    super::model::Model,
    canvas::{Canvas, line, width},
    state::State,
};
use crate::{
    terminal::{Tone, wrap_to},
    time::{Walls, time_of_day},
    watch::model::Entry,
};

/// The minimum size of a screen for showing the table; a smaller screen shows a single line.
const SMALLEST: (u16, u16) = (40, 8);
/// The minimum width for showing the details of a server beside the table.
const WIDE: u16 = 100;

/// The maximum width of an entry's subject.
const SUBJECT: usize = 24;

const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit"),
    ("Up, Down", "select a server; also k and j"),
    ("d, Enter", "details of the selected server instead of events"),
    ("r", "next read preference: which servers are marked"),
    ("s", "order: worst first, by address, slowest first"),
    ("/", "filter by address, state or tag; Escape clears it"),
    ("p", "freeze the view; monitoring goes on"),
    ("w", "save all since the start as a recording"),
    ("Page Up/Down", "scroll the events"),
    ("Ctrl-L, Ctrl-Z", "redraw; suspend"),
];

const MEANINGS: &[(&str, &str)] = &[
    ("RTT", "average round-trip time in ms; MIN and P90 of 10"),
    ("FOR, SEEN", "age of the role; age of the last answer"),
    ("WHY", "why reads may go there or not, or the error"),
    ("POOL", "generation of a client's pool; a watcher has none"),
    ("flaps", "servers lost and step-downs in the last hour"),
];

/// The width of the column of keys.
const KEY: usize = 15;

/// Everything that a frame shows.
pub(super) struct Scene<'a> {
    /// The deployment.
    pub(super) model: &'a Model,
    /// The user's choices.
    pub(super) state: &'a State,
    /// The wall-clock times.
    pub(super) walls: &'a Walls,
    /// The kind of deployment: `LIVE` or `DEMO`.
    pub(super) source: &'static str,
    /// The state of the recording.
    pub(super) recording: &'a str,
    /// The current step of the demonstration.
    pub(super) note: Option<&'a str>,
}

/// A scene, and values that are derived from it for use in several parts of the frame.
struct View<'a> {
    scene: &'a Scene<'a>,
    names: Names,
    /// The topology's description as of the last checks.
    current: TopologyDescription,
    /// The result of server selection for reads.
    reads: Option<Explanation>,
}

impl<'a> Deref for View<'a> {
    type Target = Scene<'a>;

    fn deref(&self) -> &Scene<'a> {
        self.scene
    }
}

impl Scene<'_> {
    /// Formats `at` as the time of day in UTC, with milliseconds and without the letter Z.
    fn time(&self, at: Instant) -> String {
        let mut text = time_of_day(self.walls.at(at).unwrap_or_default());
        text.truncate("12:34:56.789".len());
        text
    }
}

/// Draws the frame, and returns the area of the clock.
pub(super) fn draw(canvas: &mut Canvas<'_>, scene: &Scene<'_>) -> Rect {
    let area = canvas.area();
    let scene = &View {
        scene,
        names: Names::new(scene.model),
        current: scene.model.current(),
        reads: scene.model.explain(Some(&scene.state.preference)),
    };
    let alerts = alerts::alerts(scene);
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        head::single_line(canvas, scene, &alerts);
        return Rect::default();
    }
    let clock = head::title(canvas, line(area, 0), scene);
    let keys = line(area, area.height - 1);
    if scene.state.has_help {
        help(canvas, rest(area, 1, area.height - 2));
        head::keys(canvas, keys, scene);
        return clock;
    }
    let alerts = head::lines(&alerts, area.width, most_alerts(area.height));
    let shown = alerts.len() as u16;
    head::alerts(canvas, rest(area, 1, shown), scene, &alerts);
    let rows = table::rows(scene);
    let middle = rest(area, 1 + shown, area.height.saturating_sub(3 + shown));
    body(canvas, middle, scene, &rows);
    head::selection(canvas, line(area, area.height - 2), scene);
    head::keys(canvas, keys, scene);
    clock
}

/// Returns the maximum number of lines for alerts on a screen of the given height.
fn most_alerts(height: u16) -> usize {
    match height {
        ..12 => 1,
        12..14 => 2,
        14..20 => 3,
        _ => 5,
    }
}

/// Draws the servers, and below them the events and the details of one server.
fn body(canvas: &mut Canvas<'_>, area: Rect, scene: &View<'_>, rows: &[Row<'_>]) {
    let wanted = rows.len().max(1) as u16 + 1;
    // The events get a third of the space, but at least a heading and two lines.
    let events = (area.height / 3).max(3);
    let servers = wanted.min(area.height.saturating_sub(events)).max(2);
    table::table(canvas, rest(area, 0, servers), scene, rows);
    let below = rest(area, servers, area.height.saturating_sub(servers));
    if below.height < 2 {
        return;
    }
    let chosen = chosen(scene, rows);
    if scene.state.has_details {
        details::details(canvas, below, scene, chosen);
    } else if area.width >= WIDE {
        let left = area.width * 11 / 20;
        draw_log(canvas, Rect { width: left, ..below }, scene);
        let bar = canvas.glyphs.pick("|", "│");
        for number in 0..below.height {
            let place = line(below, number);
            let place = Rect { x: place.x + left, width: 1, ..place };
            canvas.text(place, Tone::Faint, bar);
        }
        let details = Rect { x: below.x + left + 1, width: below.width - left - 1, ..below };
        details::details(canvas, details, scene, chosen);
    } else {
        draw_log(canvas, below, scene);
    }
}

/// Returns the server whose details are shown: the selected one, or else the first.
fn chosen<'r, 'm>(scene: &View<'_>, rows: &'r [Row<'m>]) -> Option<&'r Row<'m>> {
    let selected = scene.state.selected.as_ref();
    let found = rows.iter().find(|row| Some(&row.server.description.address) == selected);
    found.or(rows.first())
}

/// Returns `height` lines of `area`, beginning with the line `first`.
fn rest(area: Rect, first: u16, height: u16) -> Rect {
    Rect { y: area.y + first, height, ..area }.intersection(area)
}

/// Draws the heading and as many entries as fit.
fn draw_log(canvas: &mut Canvas<'_>, area: Rect, scene: &View<'_>) {
    let log = &scene.model.log;
    let scrolled = scene.state.scrolled;
    let title = match (scrolled, log.iter().len()) {
        (_, 0) => "events: none yet".to_owned(),
        (0, _) => "events, newest last".to_owned(),
        (scrolled, count) => format!("events, {scrolled} newer of {count}: Page Down"),
    };
    heading(canvas, line(area, 0), &title);
    let body = rest(area, 1, area.height.saturating_sub(1));
    let room = usize::from(body.height);
    let mut entries: Vec<_> = log.iter().rev().skip(scrolled).take(room).collect();
    entries.reverse();
    let name = |entry: &Entry| scene.names.shorten(&entry.subject);
    let names = entries.iter().map(|entry| width(&name(entry)));
    let limit = SUBJECT.min(usize::from(area.width) / 3);
    let subject = names.max().unwrap_or_default().min(limit);
    for (number, entry) in entries.into_iter().enumerate() {
        let name = canvas.glyphs.fit_middle(short(&name(entry)), subject);
        let padding = " ".repeat(subject.saturating_sub(width(&name)));
        let time = scene.time(entry.at);
        let words = scene.names.shorten(&entry.words);
        canvas.texts(
            line(body, number as u16),
            &[
                (Tone::Faint, &time),
                (Tone::Normal, " "),
                (Tone::Normal, &name),
                (Tone::Normal, &padding),
                (Tone::Normal, " "),
                (entry.tone, &words),
            ],
        );
    }
}

/// Draws a heading as a line across the whole width.
fn heading(canvas: &mut Canvas<'_>, area: Rect, title: &str) {
    let bar = canvas.glyphs.pick("-", "─");
    let place = canvas.text(area, Tone::Faint, &bar.repeat(2));
    let place = canvas.texts(place, &[(Tone::Strong, " "), (Tone::Strong, title)]);
    let place = canvas.text(place, Tone::Faint, " ");
    canvas.text(place, Tone::Faint, &bar.repeat(usize::from(place.width)));
}

fn help(canvas: &mut Canvas<'_>, area: Rect) {
    heading(canvas, line(area, 0), "help: any key closes it");
    let body = rest(area, 1, area.height.saturating_sub(1));
    let levels = canvas.glyphs.pick(
        ". <2  - <10  = <20  + <50  * <100  # more ms  x lost",
        "▁1 ▂2 ▃5 ▄10 ▅20 ▆50 ▇100 █ more ms, × lost",
    );
    let lines = KEYS.iter().chain(MEANINGS).copied();
    let lines = lines.chain([("LAST", levels)]);
    let mut number = 0;
    for (key, meaning) in lines {
        let mut label = format!("{key:KEY$}");
        let words = wrap_to(meaning, usize::from(area.width).saturating_sub(KEY));
        if number + words.len() > usize::from(body.height) {
            let last = line(body, body.height.saturating_sub(1));
            canvas.text(last, Tone::Faint, "a larger window shows the rest; `sdam watch --help`");
            break;
        }
        for words in words {
            let texts = [(Tone::Strong, &*label), (Tone::Normal, &words)];
            canvas.texts(line(body, number as u16), &texts);
            number += 1;
            label = " ".repeat(KEY);
        }
    }
}

/// The short names of the servers of a deployment.
///
/// Members of one set often differ only in the first label of their host names, or in their ports.
/// The table shows whole addresses if there is room.
struct Names {
    names: Vec<(ServerAddress, String)>,
}

impl Names {
    fn new(model: &Model) -> Self {
        let addresses = model.servers().map(|server| &server.description.address);
        Self::of(addresses)
    }

    fn of<'a>(addresses: impl Iterator<Item = &'a ServerAddress> + Clone) -> Self {
        let shorten = shortening(addresses.clone());
        let names = addresses.map(|address| (address.clone(), shorten(address)));
        Self { names: names.collect() }
    }

    /// Returns the short name of a server, or the whole address if the server was removed.
    fn of_server<'n>(&'n self, address: &'n ServerAddress) -> &'n str {
        let found = self.names.iter().find(|(own, _)| own == address);
        found.map_or_else(|| short(address.as_str()), |(_, name)| name)
    }

    /// Replaces the addresses in `text` by short names.
    fn shorten(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (address, name) in &self.names {
            if text.contains(address.as_str()) {
                text = text.replace(address.as_str(), name);
            }
        }
        text
    }
}

/// Returns an address without the default port.
fn short(address: &str) -> &str {
    address.strip_suffix(":27017").unwrap_or(address)
}

/// Determines how to shorten the addresses.
fn shortening<'a>(
    addresses: impl Iterator<Item = &'a ServerAddress> + Clone,
) -> impl Fn(&ServerAddress) -> String {
    let count = addresses.clone().count();
    let mut hosts = addresses.clone().map(ServerAddress::host);
    let first = hosts.next().unwrap_or_default();
    let one_host = count > 1 && hosts.clone().all(|host| host == first);
    let mut ports = addresses.map(ServerAddress::port);
    let port = ports.next().flatten();
    let one_port = ports.all(|other| other == port);
    let domain = first.find('.').map(|dot| first[dot..].to_owned());
    // The parts of an IP address do not form a domain, so ignore them.
    let domain = domain.filter(|domain| domain.contains(|letter: char| letter.is_alphabetic()));
    let domain = domain.filter(|domain| count > 1 && hosts.all(|host| host.ends_with(&**domain)));
    move |address| {
        let Some(port) = address.port() else {
            return address.to_string();
        };
        if one_host {
            return format!(":{port}");
        }
        let host = address.host();
        let domain = domain.as_deref().unwrap_or_default();
        let host = host.strip_suffix(domain).unwrap_or(host);
        if one_port || port == DEFAULT_PORT { host.to_owned() } else { format!("{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_leave_out_what_all_addresses_have_in_common() {
        let check = |addresses: &[&str], expected: &[&str]| {
            let addresses: Vec<ServerAddress> =
                addresses.iter().map(|address| ServerAddress::parse(address).unwrap()).collect();
            let names = Names::of(addresses.iter());
            let short: Vec<&str> =
                addresses.iter().map(|address| names.of_server(address)).collect();
            assert_eq!(short, expected);
        };
        check(&["db-0.example.com", "db-1.example.com"], &["db-0", "db-1"]);
        check(&["db-0.example.com"], &["db-0.example.com"]);
        check(&["127.0.0.1:1", "127.0.0.1:2"], &[":1", ":2"]);
        check(&["10.0.0.1", "10.0.0.2"], &["10.0.0.1", "10.0.0.2"]);
        check(&["a.x.net:1", "b.x.net:2"], &["a:1", "b:2"]);
        check(&["a.x.net", "a.x.net:1", "b.x.net"], &["a", "a:1", "b"]);
        check(&["a.x.net", "b.y.net"], &["a.x.net", "b.y.net"]);
        check(&["[::1]:1", "[::1]:2"], &[":1", ":2"]);
        check(&["/tmp/a.sock", "/tmp/b.sock"], &["/tmp/a.sock", "/tmp/b.sock"]);
    }

    #[test]
    fn addresses_in_texts_are_replaced() {
        let addresses = ["a.x.net", "b.x.net"].map(|text| ServerAddress::parse(text).unwrap());
        let names = Names::of(addresses.iter());
        let text = "no primary for 1 s: a.x.net:27017 -> b.x.net:27017";
        assert_eq!(names.shorten(text), "no primary for 1 s: a -> b");
        let gone = ServerAddress::parse("c.x.net").unwrap();
        assert_eq!(names.of_server(&gone), "c.x.net");
    }
}
