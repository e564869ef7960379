//! The visible servers in order, each with the verdict of server selection, and their table, with
//! as many columns as fit.

use std::time::Duration;

use ratatui::layout::Rect;
use sdam_core::{server::ServerType, time::Instant};
use sdam_select::explain::{Explanation, Rejection, Verdict};

use super::{
    super::{
        super::{
            model::{Column as Spark, Probe, Server, state},
            screen::tone_of,
        },
        canvas::{Canvas, age, line, millis, width},
    },
    View, WIDE, rest, short,
};
use crate::{
    terminal::Tone,
    watch::{
        full::state::{Sort, State},
        model::{Model, brief},
    },
};

/// A server, and the verdict of server selection on it.
pub(super) struct Row<'m> {
    pub(super) server: &'m Server,
    /// The verdict for the chosen read preference.
    pub(super) verdict: Option<Verdict>,
}

impl Row<'_> {
    /// Explains in a few words why the server may or may not be chosen.
    pub(super) fn why(&self, model: &Model) -> (Tone, String) {
        let server = self.server;
        if !server.description.server_type.is_available() {
            let Some(error) = server.error() else {
                return (Tone::Faint, "no answer yet".to_owned());
            };
            let times = server.current_trouble().map_or(0, |trouble| trouble.checks);
            let times = if times > 1 { format!(" x{times}") } else { String::new() };
            return (Tone::Bad, format!("{}{times}", brief(error)));
        }
        if let Some(silence) = model.silence(server) {
            return (Tone::Bad, format!("silent for {}", age(silence)));
        }
        let rejection = match &self.verdict {
            Some(Verdict::Eligible { .. }) => return (Tone::Good, "in window".to_owned()),
            Some(Verdict::Rejected(rejection)) => rejection,
            _ => return (Tone::Faint, "-".to_owned()),
        };
        let words = match rejection {
            Rejection::Latency { average, fastest, threshold } => {
                let limit = *fastest + *threshold;
                let over = average.unwrap_or_default().saturating_sub(limit);
                format!("{} ms out", millis(over))
            }
            Rejection::NotPreferred { .. } => "not preferred".to_owned(),
            Rejection::Type { required, .. } => format!("not {required}"),
            Rejection::Stale { staleness, .. } => format!("stale by {}", age(*staleness)),
            Rejection::StalenessUnknown { .. } => "staleness unknown".to_owned(),
            Rejection::Tags { .. } => "other tags".to_owned(),
            _ => "left out".to_owned(),
        };
        (Tone::Faint, words)
    }
}

/// Returns the servers that match the filter, in the chosen order.
pub(in super::super) fn ordered<'m>(model: &'m Model, state: &State) -> Vec<&'m Server> {
    // Tags may be typed as `dc:la` or `{dc: la}`.
    let filter = state.filter.to_lowercase().replace([' ', '{', '}'], "");
    let servers = model.servers().filter(|server| matches(server, &filter));
    let mut servers: Vec<&Server> = servers.collect();
    match state.sort {
        Sort::Address => {}
        Sort::Worst => servers.sort_by_key(|server| rank(server)),
        Sort::Slowest => servers.sort_by_key(|server| {
            let rtt = server.description.rtt.map(|rtt| rtt.average);
            std::cmp::Reverse(rtt)
        }),
    }
    servers
}

/// Returns the rows of the table.
pub(super) fn rows<'a>(scene: &View<'a>) -> Vec<Row<'a>> {
    let servers = ordered(scene.model, scene.state).into_iter();
    servers.map(|server| Row { server, verdict: verdict(scene.reads.as_ref(), server) }).collect()
}

/// A column between the address column and the reason column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// The role.
    State,
    /// The time since the server took this role.
    For,
    /// The average round-trip time.
    Rtt,
    Minimum,
    P90,
    /// A sparkline with the given number of columns, which covers the given number of seconds.
    History(u16, u16),
    /// The time since the last answer.
    Seen,
    /// The way in which the server is checked: streaming or polling.
    Mode,
    /// The generation of the server's connection pool.
    Pool,
    /// The replication lag of the server.
    Lag,
    /// The number of times that the server was lost in the last hour.
    Flaps,
    Tags,
}

/// The sets of columns, the widest first.
const SETS: &[&[Column]] = {
    use Column::{Flaps, For, History, Lag, Minimum, Mode, P90, Pool, Rtt, Seen, State, Tags};

    &[
        &[State, For, Rtt, Minimum, P90, History(30, 120), Seen, Mode, Lag, Pool, Flaps, Tags],
        &[State, For, Rtt, Minimum, P90, History(20, 120), Seen, Mode, Lag, Pool, Tags],
        &[State, For, Rtt, P90, History(20, 120), Seen, Mode, Lag],
        &[State, For, Rtt, P90, History(15, 60), Seen],
        &[State, For, Rtt, History(12, 60), Seen],
        &[State, For, Rtt, Seen],
        &[State, For, Rtt],
    ]
};

/// The width of the mark for the selected server.
const MARK: u16 = 2;
/// The minimum width of the address column, which may be narrower only if all addresses are
/// shorter.
const NAME: u16 = 20;
/// The width that the choice of columns leaves for reasons, or less if all reasons are shorter.
const WHY: u16 = 14;
/// The minimum width of the reason column; if less space is left, reasons are omitted.
const SHORTEST_WHY: u16 = 9;

/// The columns of a table and their widths.
struct Layout {
    columns: Vec<(Column, u16)>,
    name: u16,
    why: u16,
}

/// Draws as much of the table as fits, and the number of omitted servers.
pub(super) fn table(canvas: &mut Canvas<'_>, area: Rect, scene: &View<'_>, rows: &[Row<'_>]) {
    let layout = Layout::new(scene, rows, area.width);
    heading(canvas, line(area, 0), &layout);
    let room = usize::from(area.height.saturating_sub(1));
    if rows.is_empty() {
        let words = match scene.state.filter.as_str() {
            "" => "no servers".to_owned(),
            filter => format!("no server matches the filter `{filter}`"),
        };
        canvas.text(line(area, 1), Tone::Doubtful, &format!("  {words}"));
        return;
    }
    // If not all servers fit, the last line shows the number of omitted ones.
    let visible = if rows.len() > room { room.saturating_sub(1) } else { room };
    let selected = scene.state.selected.as_ref();
    let is_selected = |row: &Row<'_>| Some(&row.server.description.address) == selected;
    let position = rows.iter().position(is_selected).unwrap_or_default();
    let first = (position + 1).saturating_sub(visible.max(1));
    let body = rest(area, 1, area.height.saturating_sub(1));
    for (number, row) in rows.iter().skip(first).take(visible).enumerate() {
        let place = line(body, number as u16);
        layout.row(canvas, place, scene, row, is_selected(row));
    }
    if rows.len() > room {
        let below = rows.len().saturating_sub(first + visible);
        let words = match (first, below) {
            (0, below) => format!("  {below} more below: Down scrolls"),
            (above, 0) => format!("  {above} more above: Up scrolls"),
            (above, below) => format!("  {above} more above, {below} below"),
        };
        canvas.text(line(body, visible as u16), Tone::Faint, &words);
    }
}

/// The minimum lag to highlight.
pub(super) const LAGGING: Duration = Duration::from_secs(10);

/// Formats the tags of a server, such as `dc:ny,rack:1`.
pub(super) fn tags(server: &Server) -> String {
    let tags = server.description.tags.iter();
    let tags: Vec<String> = tags.map(|(name, value)| format!("{name}:{value}")).collect();
    tags.join(",")
}

impl Layout {
    /// Chooses the widest set of columns that leaves enough space for addresses and reasons.
    fn new(scene: &View<'_>, rows: &[Row<'_>], total: u16) -> Self {
        let names = rows.iter().map(|row| width(name(scene, row, total)));
        let name = names.max().unwrap_or_default().max(6) as u16;
        let why = rows.iter().map(|row| width(&row.why(scene.model).1)).max();
        let why = why.unwrap_or_default().max(3) as u16;
        let taken = |columns: &[(Column, u16)]| {
            MARK + 1 + columns.iter().map(|(_, width)| width + 1).sum::<u16>()
        };
        let fits =
            |columns: &[(Column, u16)]| taken(columns) + name.min(NAME) + why.min(WHY) <= total;
        let with_widths = |columns: &[Column]| -> Vec<_> {
            columns.iter().map(|column| (*column, column.look(rows).1)).collect()
        };
        let chosen = SETS.iter().position(|columns| fits(&with_widths(columns)));
        let chosen = chosen.unwrap_or(SETS.len() - 1);
        let mut columns = with_widths(SETS[chosen]);
        // Add the columns of wider sets that still fit, one at a time.
        for wider in SETS[..chosen].iter().rev() {
            for (place, added) in wider.iter().enumerate() {
                if columns.iter().any(|(own, _)| own.is_same(*added)) {
                    continue;
                }
                let before = wider[..place].iter().rev();
                let before = before
                    .filter_map(|other| columns.iter().position(|(own, _)| own.is_same(*other)));
                let place = before.take(1).next().map_or(0, |before| before + 1);
                for width in [Some(added.look(rows).1), added.narrowest()].into_iter().flatten() {
                    let mut more = columns.clone();
                    more.insert(place, (*added, width));
                    if fits(&more) {
                        columns = more;
                        break;
                    }
                }
            }
        }
        let rest = total.saturating_sub(taken(&columns));
        // Reasons get the space that addresses do not need, but at least their minimum.
        let mut own = why.min(WHY).min(rest.saturating_sub(NAME.min(name)));
        if own < SHORTEST_WHY.min(why) {
            own = 0;
        }
        let name = name.min(rest.saturating_sub(own));
        let why = if own == 0 { 0 } else { rest.saturating_sub(name) };
        Self { columns, name, why }
    }

    fn row(
        &self,
        canvas: &mut Canvas<'_>,
        area: Rect,
        scene: &View<'_>,
        row: &Row<'_>,
        is_selected: bool,
    ) {
        let mark = if is_selected { "> " } else { "  " };
        let tone = if is_selected { Tone::Strong } else { Tone::Normal };
        let place = canvas.text(area, tone, mark);
        let name = name(scene, row, canvas.area().width);
        let name = canvas.glyphs.fit_middle(name, usize::from(self.name));
        let mut place = put(canvas, place, self.name, (tone, &name), false);
        for (column, width) in &self.columns {
            if let Column::History(columns, seconds) = column {
                history(canvas, place, scene.model.now, row.server, *columns, *seconds);
                place = put(canvas, place, *width, (tone, ""), false);
                continue;
            }
            let (tone, text) = column.cell(canvas, scene, row.server);
            place = put(canvas, place, *width, (tone, &text), column.is_number());
        }
        if self.why > 0 {
            let (tone, why) = row.why(scene.model);
            canvas.text(place, tone, &why);
        }
    }
}

impl Column {
    /// Returns the title and the width.
    fn look(self, rows: &[Row<'_>]) -> (&'static str, u16) {
        match self {
            Self::State => ("STATE", 11),
            Self::For => ("FOR", 6),
            Self::Rtt => ("RTT", 5),
            Self::Minimum => ("MIN", 5),
            Self::P90 => ("P90", 5),
            Self::History(columns, 120) => ("LAST 120 s", columns),
            Self::History(columns, _) => ("LAST 60 s", columns),
            Self::Seen => ("SEEN", 6),
            Self::Mode => ("MODE", 6),
            Self::Pool => ("POOL", 4),
            Self::Lag => ("LAG", 5),
            Self::Flaps => ("FLAPS", 5),
            Self::Tags => {
                let tags = rows.iter().map(|row| width(&tags(row.server)));
                ("TAGS", tags.max().unwrap_or_default().clamp(4, 16) as u16)
            }
        }
    }

    /// Returns the minimum useful width of the column if its values may be cut off.
    fn narrowest(self) -> Option<u16> {
        (self == Self::Tags).then_some(8)
    }

    /// Returns whether both columns show the same values, perhaps with different widths.
    fn is_same(self, other: Self) -> bool {
        self == other || matches!((self, other), (Self::History(..), Self::History(..)))
    }

    fn is_number(self) -> bool {
        !matches!(self, Self::State | Self::Mode | Self::Tags | Self::History(..))
    }

    fn cell(self, canvas: &Canvas<'_>, scene: &View<'_>, server: &Server) -> (Tone, String) {
        let (model, description) = (scene.model, &server.description);
        let now = model.now;
        let rtt = |rtt: Option<Duration>| {
            let known = rtt.filter(|rtt| !rtt.is_zero());
            known.map_or("-".to_owned(), millis)
        };
        let is_down = server.current_trouble().is_some() || model.silence(server).is_some();
        let normal = |text| (Tone::Normal, text);
        match self {
            Self::State => {
                let (ascii, unicode) = mark(description.server_type, is_down);
                let mark = canvas.glyphs.pick(ascii, unicode);
                let words = state(description.server_type);
                (tone_of(description), format!("{mark} {words}"))
            }
            Self::For => normal(age(now.since(server.since()))),
            Self::Rtt => normal(rtt(description.rtt.map(|rtt| rtt.average))),
            Self::Minimum => normal(rtt(description.rtt.map(|rtt| rtt.minimum))),
            Self::P90 => normal(rtt(description.rtt.map(|rtt| rtt.p90))),
            Self::Seen => match server.answered {
                None => (Tone::Faint, "never".to_owned()),
                Some(at) if is_down => (Tone::Bad, age(now.since(at))),
                Some(at) => normal(age(now.since(at))),
            },
            Self::Mode => {
                (Tone::Faint, server.mode.map_or("-".to_owned(), |mode| mode.to_string()))
            }
            Self::Pool => normal(server.pool.generation.to_string()),
            Self::Lag => match model.lag(&scene.current, server) {
                None => (Tone::Faint, "-".to_owned()),
                Some(lag) if lag >= LAGGING => (Tone::Doubtful, age(lag)),
                Some(lag) => normal(age(lag)),
            },
            Self::Flaps => match model.flaps(Some(&description.address)) {
                0 => (Tone::Faint, "-".to_owned()),
                flaps => (Tone::Doubtful, flaps.to_string()),
            },
            Self::Tags => (Tone::Faint, tags(server)),
            Self::History(..) => normal(String::new()),
        }
    }
}

fn heading(canvas: &mut Canvas<'_>, area: Rect, layout: &Layout) {
    let place = canvas.text(area, Tone::Faint, "  ");
    let mut place = put(canvas, place, layout.name, (Tone::Faint, "SERVER"), false);
    for (column, width) in &layout.columns {
        let (title, _) = column.look(&[]);
        place = put(canvas, place, *width, (Tone::Faint, title), column.is_number());
    }
    if layout.why > 0 {
        canvas.text(place, Tone::Faint, "WHY");
    }
}

/// Writes a cell, and returns the area that remains after the cell and the gap behind it.
fn put(
    canvas: &mut Canvas<'_>,
    area: Rect,
    width: u16,
    (tone, text): (Tone, &str),
    is_number: bool,
) -> Rect {
    let cell = Rect { width: width.min(area.width), ..area };
    if is_number {
        canvas.text_right(cell, tone, text);
    } else {
        canvas.text(cell, tone, text);
    }
    let taken = (width + 1).min(area.width);
    Rect { x: area.x + taken, width: area.width - taken, ..area }
}

/// Returns the address of a server, or its short name on a narrow screen.
fn name<'n>(scene: &'n View<'_>, row: &'n Row<'_>, total: u16) -> &'n str {
    let address = &row.server.description.address;
    if total < WIDE { scene.names.of_server(address) } else { short(address.as_str()) }
}

/// Returns the symbol of a role in ASCII and in Unicode, so that no state is shown by colour alone.
fn mark(role: ServerType, is_down: bool) -> (&'static str, &'static str) {
    match role {
        writable if writable.is_writable() => ("*", "●"),
        ServerType::Unknown | ServerType::PossiblePrimary if is_down => ("x", "✗"),
        ServerType::Unknown | ServerType::PossiblePrimary => ("?", "?"),
        ServerType::RsSecondary => ("o", "○"),
        ServerType::RsArbiter => (".", "·"),
        _useless => ("!", "!"),
    }
}

/// Draws the sparkline of a server; failed checks have a special symbol.
fn history(
    canvas: &mut Canvas<'_>,
    area: Rect,
    now: Instant,
    server: &Server,
    count: u16,
    seconds: u16,
) {
    let period = Duration::from_secs(u64::from(seconds)) / u32::from(count.max(1));
    let mut place = area;
    for column in server.history.columns(now, period, usize::from(count)) {
        let tone = match column {
            Spark::Checked(Probe::Lost) | Spark::Held(Probe::Lost) => Tone::Bad,
            Spark::Checked(Probe::Answered(_)) => Tone::Good,
            Spark::Held(Probe::Answered(_)) | Spark::Empty => Tone::Faint,
        };
        place = canvas.text(place, tone, canvas.glyphs.column(column));
    }
}

fn matches(server: &Server, filter: &str) -> bool {
    let description = &server.description;
    let role = state(description.server_type).to_lowercase();
    filter.is_empty()
        || description.address.as_str().contains(filter)
        || role.contains(filter)
        || tags(server).to_lowercase().contains(filter)
}

/// Returns the rank of a server, which is lowest for the worst servers.
fn rank(server: &Server) -> u8 {
    match server.description.server_type {
        ServerType::Unknown | ServerType::PossiblePrimary if server.error().is_some() => 0,
        ServerType::Unknown | ServerType::PossiblePrimary => 2,
        writable if writable.is_writable() => 3,
        ServerType::RsSecondary => 4,
        ServerType::RsArbiter => 5,
        _useless => 1,
    }
}

fn verdict(explanation: Option<&Explanation>, server: &Server) -> Option<Verdict> {
    let address = &server.description.address;
    let servers = &explanation?.servers;
    // Both lists are sorted by address.
    let index = servers.binary_search_by(|explained| explained.address.cmp(address));
    Some(servers.get(index.ok()?)?.verdict.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::watch::model::tests::Script;

    #[test]
    fn only_types_that_accept_writes_are_shown_as_writable() {
        let mut server = Script::open("mongodb://a").model.servers().next().unwrap().clone();
        for role in ServerType::ALL {
            Arc::make_mut(&mut server.description).server_type = *role;
            let (symbol, _) = mark(*role, false);
            let shown = (symbol, rank(&server), tone_of(&server.description));
            let is_writable = [symbol == "*", shown.1 == 3, shown.2 == Tone::Good];
            assert_eq!(is_writable, [role.is_writable(); 3], "{role}: {shown:?}");
        }
    }
}
