//! The picture of the whole span, which needs no script and can be printed.

use std::fmt::Write as _;

use super::{
    data::order,
    html::text,
    timeline::{Band, State, Timeline},
};

/// The width of the picture. Its height depends on the number of lanes.
const WIDTH: u64 = 1000;
const HEIGHT: u64 = 22;
/// The width of the column of names.
const LEFT: u64 = 190;

/// The fill pattern for lost servers, which works without colours.
const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
                     patternUnits=\"userSpaceOnUse\"><path class=\"hatch\" d=\"M0 6L6 0\"/>\
                     </pattern></defs>";

/// Returns an `svg` element with a lane for the set and one for each server.
pub(super) fn svg(timeline: &Timeline, clock: &impl Fn(u64) -> String) -> String {
    let order = order(timeline);
    let height = (order.len() as u64 + 2) * HEIGHT;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"state of each server over time\">{HATCH}"
    );
    lane(&mut svg, timeline, &timeline.set, "set", 0);
    for (index, row) in order.iter().zip(1..) {
        let server = &timeline.lanes[*index];
        lane(&mut svg, timeline, &server.bands, &server.address, row);
    }
    let bottom = height - HEIGHT;
    for change in timeline.changes.iter().filter(|change| change.is_gap()).take(50) {
        let from = x(timeline, timeline.offset(change.outage.earliest()));
        let to = x(timeline, change.over(timeline)).max(from + 1);
        let width = to - from;
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            svg,
            "<rect class=\"outage\" x=\"{from}\" y=\"0\" width=\"{width}\" height=\"{bottom}\"/>"
        );
    }
    let (start, end, base) = (clock(0), clock(timeline.span), height - 6);
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{base}\">{start}</text>\
         <text x=\"{WIDTH}\" y=\"{base}\" text-anchor=\"end\">{end}</text></svg>"
    );
    svg
}

/// Adds a lane with one path for each state.
fn lane(svg: &mut String, timeline: &Timeline, bands: &[Band], name: &str, row: u64) {
    let top = row * HEIGHT;
    let _ = write!(svg, "<text x=\"0\" y=\"{}\">{}</text>", top + 15, text(&shorten(name)));
    let mut paths: [String; State::ALL.len()] = Default::default();
    let (y, height) = (top + 3, HEIGHT - 6);
    for (index, band) in bands.iter().enumerate() {
        let from = x(timeline, band.from);
        // Widen the band if necessary, so that even the shortest loss is visible.
        let to = x(timeline, timeline.end_of(bands, index)).max(from + 1);
        let width = to - from;
        let path = &mut paths[band.state as usize];
        let piece = format!("M{from} {y}h{width}v{height}h-{width}z");
        if !path.ends_with(&piece) {
            path.push_str(&piece);
        }
    }
    // Worse states are drawn over better ones.
    for (path, state) in paths.iter().zip(State::ALL) {
        if !path.is_empty() && *state != State::Absent {
            let _ = write!(svg, "<path class=\"s{}\" d=\"{path}\"/>", *state as u8);
            if *state == State::Lost {
                let _ = write!(svg, "<path fill=\"url(#hatch)\" d=\"{path}\"/>");
            }
        }
    }
}

fn x(timeline: &Timeline, at: u64) -> u64 {
    let width = u128::from(WIDTH - LEFT - 1);
    let x = u128::from(at) * width / u128::from(timeline.span.max(1));
    LEFT + u64::try_from(x).unwrap_or(0)
}

fn shorten(name: &str) -> String {
    const MAX: usize = 26;
    match name.char_indices().nth(MAX) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}\u{2026}", &name[..end]),
    }
}
