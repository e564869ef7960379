//! Output of events and snapshots.

use std::{
    io::{self, Write},
    time::SystemTime,
};

use sdam_core::{
    event::{Event, EventKind},
    options::Options,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::{facts::Facts, record::Origin};
use sdam_select::settings::Settings;

use super::{Access, screen::Screen};
use crate::{
    console::Console,
    exit::Exit,
    json,
    log::time_of_day,
    terminal::{Tone, json_line, sanitize},
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
    settings: Settings,
    /// Converts the times of the events to wall-clock times. If it is `None`, the first event is
    /// assumed to take place now.
    wall: Option<Origin>,
}

impl<O: Write, R: Write> View<O, R> {
    pub(super) fn new(console: Console<O, R>, json: bool, options: &Options) -> Self {
        Self {
            screen: Screen::new(console.palette),
            console,
            json,
            simulated: false,
            facts: Facts::new(),
            settings: Settings::new(options),
            wall: None,
        }
    }

    /// Shows the changes that an event causes; most events cause none.
    pub(super) fn event(&mut self, event: &Event) -> io::Result<()> {
        self.wall.get_or_insert_with(|| Origin::at(event.at, SystemTime::now()));
        let facts = self.facts.observe(event);
        let EventKind::TopologyDescriptionChanged { previous, new } = &event.kind else {
            return Ok(());
        };
        if self.json {
            return self.print_json(new);
        }
        let (time, access) = (self.time(event.at), Access::of(new, &self.settings));
        let change = self.screen.topology(&time, Some(previous), new, access);
        let facts = self.screen.facts(&time, &facts);
        self.print(&format!("{change}{facts}"))
    }

    /// Shows a whole topology.
    pub(super) fn snapshot(&mut self, topology: &TopologyDescription) -> io::Result<Exit> {
        let access = Access::of(topology, &self.settings);
        if self.json {
            self.print_json(topology)?;
        } else {
            self.print(&self.screen.topology(&now(), None, topology, access))?;
        }
        Ok(access.exit())
    }

    /// Prints a note to standard output or, if the output is JSON, to standard error.
    pub(super) fn note(&mut self, words: &str) -> io::Result<()> {
        if self.json {
            return writeln!(self.console.remarks, "{}", sanitize(words));
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

    /// Returns the time of day of an event.
    fn time(&mut self, at: Instant) -> String {
        let now = SystemTime::now();
        let wall = self.wall.get_or_insert_with(|| Origin::at(at, now));
        time_of_day(wall.wall(at).unwrap_or(now))
    }

    fn print_json(&mut self, topology: &TopologyDescription) -> io::Result<()> {
        let mut json = json::snapshot(topology);
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

/// Returns the current time of day.
fn now() -> String {
    time_of_day(SystemTime::now())
}
