//! Output of events and snapshots.

use std::io::{self, Write};

use sdam::transport::system::wall;
use sdam_core::{
    event::{Event, EventKind},
    options::Options,
    time::UnixTime,
    topology::TopologyDescription,
};
use sdam_events::facts::Facts;
use sdam_select::settings::Settings;

use super::{Access, screen::Screen};
use crate::{
    console::Console,
    exit::Exit,
    json,
    terminal::{Tone, json_line},
    wall::time_of_day,
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

    /// Prints a topology, and the time from which on it was so.
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

/// Returns the current time of day.
fn now() -> String {
    time_of_day(wall())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdam_core::{ids::ObjectId, time::Instant};
    use serde_json::Value;

    use super::*;
    use crate::terminal::Palette;

    /// The machine is suspended between two events, which the clock of the client does not count.
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
}
