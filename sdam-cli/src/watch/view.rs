//! Output of events and snapshots.

use std::{
    io::{self, Write},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use sdam::transport::clock::Clock;
use sdam_core::{
    event::{Event, EventKind},
    options::Options,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::facts::Facts;
use sdam_select::settings::Settings;

use super::{Access, screen::Screen};
use crate::{
    console::Console,
    exit::Exit,
    json::{self, RoundTrips},
    terminal::{Tone, json_line, sanitize},
};

/// The console, and the state needed to format its output.
pub(crate) struct View<O, R> {
    console: Console<O, R>,
    json: bool,
    simulated: bool,
    screen: Screen,
    facts: Facts,
    settings: Settings,
    /// The same moment on the events' clock and on the wall clock, to show the times of events.
    anchor: Option<(Instant, SystemTime)>,
    /// The clock of the topology; `None` if its time passes like wall-clock time.
    clock: Option<Arc<dyn Clock>>,
}

impl<O: Write, R: Write> View<O, R> {
    pub(crate) fn new(console: Console<O, R>, json: bool, options: &Options) -> Self {
        Self {
            screen: Screen::new(console.palette),
            console,
            json,
            simulated: false,
            facts: Facts::new(),
            settings: Settings::new(options),
            anchor: None,
            clock: None,
        }
    }

    /// Marks the deployment as simulated in each JSON object; text output has a note instead.
    pub(crate) fn of_a_simulation(mut self) -> Self {
        self.simulated = true;
        self
    }

    /// Sets a moment on both clocks as the reference for wall-clock times; by default, it is the
    /// moment of the first event.
    pub(crate) fn beginning(mut self, anchor: (Instant, SystemTime)) -> Self {
        self.anchor = Some(anchor);
        self
    }

    /// Uses the virtual time of `clock` for notes. Requires a call of
    /// [`beginning`](Self::beginning).
    pub(crate) fn on(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Shows the changes that an event causes; most events cause none.
    pub(crate) fn event(&mut self, event: &Event) -> io::Result<()> {
        let (at, began) = *self.anchor.get_or_insert((event.at, SystemTime::now()));
        let facts = self.facts.observe(event);
        let EventKind::TopologyDescriptionChanged { previous, new } = &event.kind else {
            return Ok(());
        };
        if self.json {
            return self.print_json(new);
        }
        let time = time_of_day(began + event.at.since(at));
        let access = Access::of(new, &self.settings);
        let change = self.screen.topology(&time, Some(previous), new, access);
        let facts = self.screen.facts(&time, &facts);
        self.print(&format!("{change}{facts}"))
    }

    /// Shows a whole topology.
    pub(crate) fn snapshot(&mut self, topology: &TopologyDescription) -> io::Result<Exit> {
        let access = Access::of(topology, &self.settings);
        if self.json {
            self.print_json(topology)?;
        } else {
            let time = time_of_day(self.now());
            let text = self.screen.topology(&time, None, topology, access);
            self.print(&text)?;
        }
        Ok(access.exit())
    }

    /// Prints a note; with JSON output, on standard error.
    pub(crate) fn note(&mut self, words: &str) -> io::Result<()> {
        if self.json {
            return writeln!(self.console.remarks, "{}", sanitize(words));
        }
        self.note_at(self.now(), words)
    }

    /// Prints a user's mark that was set at `at`, except in JSON output.
    pub(crate) fn mark(&mut self, at: Instant, words: &str) -> io::Result<()> {
        let (start, began) = *self.anchor.get_or_insert((at, SystemTime::now()));
        self.note_at(began + at.since(start), words)
    }

    fn note_at(&mut self, time: SystemTime, words: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let text = self.screen.note(&time_of_day(time), Tone::Strong, words);
        self.print(&text)
    }

    /// Prints a warning that the output is incomplete.
    pub(crate) fn warn(&mut self, words: &str) -> io::Result<()> {
        writeln!(self.console.remarks, "warning: {words}")
    }

    pub(crate) fn remarks(&mut self) -> &mut R {
        &mut self.console.remarks
    }

    fn now(&self) -> SystemTime {
        match (&self.clock, self.anchor) {
            (Some(clock), Some((at, began))) => began + clock.now().since(at),
            _ => SystemTime::now(),
        }
    }

    fn print_json(&mut self, topology: &TopologyDescription) -> io::Result<()> {
        let mut json = json::snapshot(topology, RoundTrips::Shown);
        if self.simulated {
            json["simulated"] = true.into();
        }
        self.print(&format!("{}\n", json_line(&json)))
    }

    /// Prints `text` and flushes the output, for a user who is watching.
    fn print(&mut self, text: &str) -> io::Result<()> {
        self.console.output.write_all(text.as_bytes())?;
        self.console.output.flush()
    }
}

/// Formats the time of day in UTC, as servers' logs do.
pub(crate) fn time_of_day(wall: SystemTime) -> String {
    let since_epoch = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since_epoch.as_secs(), since_epoch.subsec_millis());
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{millis:03}Z", seconds % 60)
}
