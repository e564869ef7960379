//! Draws a frame of the screen, and decides how much space each of its parts gets.

mod alerts;
mod details;
mod events;
mod head;
mod help;
mod names;
mod rows;
mod table;

use std::ops::Deref;

use ratatui::layout::Rect;
use sdam_core::{time::Instant, topology::TopologyDescription};
use sdam_select::explain::Explanation;

pub(super) use self::rows::ordered;
use self::{names::Names, rows::Row};
use super::{
    super::model::Model,
    canvas::{Canvas, line},
    state::State,
};
use crate::{
    terminal::Tone,
    wall::{Walls, time_of_day},
};

/// The minimum size of a screen for showing the table; a smaller screen shows a single line.
const SMALLEST: (u16, u16) = (40, 8);
/// The minimum width for showing the details of a server beside the table.
const WIDE: u16 = 100;

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
        help::help(canvas, rest(area, 1, area.height - 2));
        head::keys(canvas, keys, scene);
        return clock;
    }
    let alerts = head::lines(&alerts, area.width, most_alerts(area.height));
    let shown = alerts.len() as u16;
    head::alerts(canvas, rest(area, 1, shown), scene, &alerts);
    let rows = rows::rows(scene);
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
        events::events(canvas, Rect { width: left, ..below }, scene);
        let bar = canvas.glyphs.pick("|", "│");
        for number in 0..below.height {
            let place = line(below, number);
            let place = Rect { x: place.x + left, width: 1, ..place };
            canvas.text(place, Tone::Faint, bar);
        }
        let details = Rect { x: below.x + left + 1, width: below.width - left - 1, ..below };
        details::details(canvas, details, scene, chosen);
    } else {
        events::events(canvas, below, scene);
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
