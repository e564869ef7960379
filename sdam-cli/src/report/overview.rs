//! The picture of the states of all servers over time.

use std::fmt::Write as _;

use strum::VariantArray as _;

use super::{
    page::text,
    timeline::{Band, BandState, Lane, Timeline},
};
use crate::time::{range, short};

/// The maximum number of lanes on a page, where each lane shows one server.
pub(super) const MAX_LANES: usize = 64;

/// The width of the picture. Its height depends on the number of lanes.
const WIDTH: u64 = 1000;
/// The height of a lane, with the gap below it.
const LANE: u64 = 24;
/// The height of a band in its lane.
const BAND: u64 = 18;
/// The width of the column of names.
const LEFT: u64 = 190;
/// The height of the line with the lengths of the outages.
const TOP: u64 = 20;
/// The height of the line with the times.
const AXIS: u64 = 22;
/// The approximate width of a character.
const LETTER: u64 = 7;
/// The maximum number of times on the axis.
const TICKS: u64 = 7;

/// The fill pattern for lost servers, which works without colours.
const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
                     patternUnits=\"userSpaceOnUse\"><path class=\"hatch\" d=\"M0 6L6 0\"/>\
                     </pattern></defs>";

/// Returns an `svg` element with a lane for the set and one for each server. `day` is the time of
/// day at the start, in nanoseconds.
pub(super) fn svg(timeline: &Timeline, clock: &impl Fn(u64) -> String, day: u64) -> String {
    let order = order(timeline);
    let bottom = TOP + (order.len() as u64 + 1) * LANE;
    let height = bottom + AXIS;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"state of each server over time\">{HATCH}"
    );
    axis(&mut svg, timeline, clock, day, bottom);
    outages(&mut svg, timeline, bottom);
    let set = if timeline.is_replica_set { "primary" } else { "deployment" };
    lane(&mut svg, timeline, &timeline.set, set, TOP);
    for (index, row) in order.iter().zip(1..) {
        let server = &timeline.lanes[*index];
        lane(&mut svg, timeline, &server.bands, &server.address, TOP + row * LANE);
    }
    for (from, to) in &timeline.gaps {
        let (from, to) = (x(timeline, *from), x(timeline, *to));
        let (width, height) = (to - from, bottom - TOP);
        let _ = write!(
            svg,
            "<rect class=\"gap\" x=\"{from}\" y=\"{TOP}\" width=\"{width}\" height=\"{height}\"/>"
        );
    }
    svg + "</svg>"
}

/// Returns the lanes to show, sorted by name. If there are too many, lanes with problems come
/// before the others, so that they are not left out.
pub(super) fn order(timeline: &Timeline) -> Vec<usize> {
    let lanes = &timeline.lanes;
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    let is_calm = |lane: &Lane| lane.losses == 0 && lane.failed == 0 && lane.bands.len() < 3;
    let many = lanes.len() > MAX_LANES;
    order.sort_by_key(|index| (many && is_calm(&lanes[*index]), &lanes[*index].address));
    order.truncate(MAX_LANES);
    order
}

/// Adds lines at round times of day, with the times below the lanes.
fn axis(
    svg: &mut String,
    timeline: &Timeline,
    clock: &impl Fn(u64) -> String,
    day: u64,
    bottom: u64,
) {
    let (step, base) = (step(timeline.span), bottom + AXIS - 6);
    let first = day.next_multiple_of(step) - day;
    let ticks = (0..=TICKS).map(|tick| first + tick * step);
    for at in ticks.take_while(|at| *at <= timeline.span) {
        let x = x(timeline, at);
        let time = clock(at);
        // Times in whole seconds do not need their milliseconds.
        let time = match time.split_once('.') {
            Some((seconds, _)) if step >= SECOND => seconds,
            _ => time.trim_end_matches(" UTC"),
        };
        let anchor = if x + 5 * LETTER > WIDTH { "end" } else { "middle" };
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{x} {TOP}V{bottom}\"/>\
             <text class=\"time\" x=\"{x}\" y=\"{base}\" text-anchor=\"{anchor}\">{}</text>",
            text(time)
        );
    }
}

const SECOND: u64 = 1_000_000_000;

/// Returns the distance between the times on the axis, in nanoseconds.
fn step(span: u64) -> u64 {
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    let decimal = (0..=4).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let decimal =
        decimal.map(|millis| millis * (SECOND / 1000)).filter(|step| *step <= 10 * SECOND);
    let seconds = [15, 30].map(|seconds| seconds * SECOND);
    let minutes = [1, 2, 5, 10, 15, 30].map(|minutes| minutes * MINUTE);
    let hours = [1, 2, 3, 6, 12].map(|hours| hours * HOUR);
    let mut steps = decimal.chain(seconds).chain(minutes).chain(hours);
    let days = 24 * HOUR * (span / (24 * HOUR * TICKS) + 1);
    steps.find(|step| span / step < TICKS).unwrap_or(days)
}

/// Adds a lane with one path for each state, and the names of wide bands.
fn lane(svg: &mut String, timeline: &Timeline, bands: &[Band], name: &str, top: u64) {
    let (y, base) = (top + (LANE - BAND) / 2, top + 16);
    let name = shorten(name, (LEFT - LETTER) / LETTER);
    let _ = write!(svg, "<text x=\"0\" y=\"{base}\">{}</text>", text(&name));
    let mut paths: [String; BandState::VARIANTS.len()] = Default::default();
    let mut names = String::new();
    for (index, band) in bands.iter().enumerate() {
        let from = x(timeline, band.from);
        // Widen the band if necessary, so that even the shortest loss is visible.
        let to = x(timeline, timeline.end_of(bands, index)).max(from + 1);
        let width = to - from;
        let path = &mut paths[band.state as usize];
        let piece = format!("M{from} {y}h{width}v{BAND}h-{width}z");
        if !path.ends_with(&piece) {
            path.push_str(&piece);
        }
        if band.state != BandState::Absent && width > 8 * LETTER {
            let _ = write!(
                names,
                "<text class=\"on{}\" x=\"{}\" y=\"{base}\">{}</text>",
                band.state as u8,
                from + LETTER,
                text(&shorten(&band.name, width / LETTER - 2))
            );
        }
    }
    // Worse states are drawn over better ones.
    for (path, state) in paths.iter().zip(BandState::VARIANTS) {
        if !path.is_empty() && *state != BandState::Absent {
            let _ = write!(svg, "<path class=\"s{}\" d=\"{path}\"/>", *state as u8);
            if *state == BandState::Lost {
                let _ = write!(svg, "<path fill=\"url(#hatch)\" d=\"{path}\"/>");
            }
        }
    }
    svg.push_str(&names);
}

/// Marks the periods without a writable server behind all lanes, with their lengths above.
fn outages(svg: &mut String, timeline: &Timeline, bottom: u64) {
    let gaps = timeline.changes.iter().filter(|change| change.is_gap());
    let (mut last, mut free) = ((0, 0), 0);
    for change in gaps {
        let from = x(timeline, timeline.offset(change.outage.earliest()));
        let to = x(timeline, change.over(timeline)).max(from + 1);
        // Many outages in a long recording may cover the same place.
        if last == (from, to) {
            continue;
        }
        last = (from, to);
        let (width, height) = (to - from, bottom - TOP + 2);
        let _ = write!(
            svg,
            "<rect class=\"outage\" x=\"{from}\" y=\"{}\" width=\"{width}\" height=\"{height}\"/>\
             <rect class=\"s{}\" x=\"{from}\" y=\"{}\" width=\"{width}\" height=\"3\"/>",
            TOP - 2,
            BandState::Lost as u8,
            TOP - 4
        );
        let length = range(change.without(timeline), short);
        let taken = (length.chars().count() as u64 + 1) * LETTER;
        let start = from.min(WIDTH.saturating_sub(taken));
        if start >= free {
            let _ = write!(
                svg,
                "<text class=\"length\" x=\"{start}\" y=\"12\">{}</text>",
                text(&length)
            );
            free = start + taken;
        }
    }
}

fn x(timeline: &Timeline, at: u64) -> u64 {
    let width = u128::from(WIDTH - LEFT - 1);
    let x = u128::from(at) * width / u128::from(timeline.span.max(1));
    LEFT + u64::try_from(x).unwrap_or(0)
}

/// Shortens `name` to at most `most` characters.
fn shorten(name: &str, most: u64) -> String {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match name.char_indices().nth(most.saturating_sub(1)) {
        Some((end, _)) if name.chars().count() > most => format!("{}\u{2026}", &name[..end]),
        _ => name.to_owned(),
    }
}
