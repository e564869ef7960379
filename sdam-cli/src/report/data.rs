//! The data that the page passes to its script.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    columns::{Column, deltas},
    levels,
    row::Kind,
    timeline::{Band, Lane, Row, State, Timeline},
    verdict,
};
use crate::{duration::short, failover::range, recording::Recording};

/// The maximum number of lanes on a page, where each lane shows one server.
pub(super) const MAX_LANES: usize = 64;

/// Returns the data as JSON that is safe inside a `script` element.
pub(super) fn data(recording: &Recording, timeline: &Timeline) -> String {
    let mut strings = Strings::default();
    let mut rows: Vec<Vec<&Row>> = timeline.lanes.iter().map(|_| Vec::new()).collect();
    for row in &timeline.rows {
        if let Some(lane) = row.lane.and_then(|lane| rows.get_mut(lane)) {
            lane.push(row);
        }
    }
    let lanes: Vec<Value> = timeline
        .lanes
        .iter()
        .zip(&rows)
        .map(|(lane, rows)| {
            let levels = levels::levels(lane, rows, timeline.span);
            let levels = levels
                .into_iter()
                .map(|(bits, buckets)| json!({ "bits": bits, "data": levels::encode(&buckets) }));
            json!({
                "name": lane.address,
                "bands": bands(&lane.bands, &mut strings),
                "levels": levels.collect::<Vec<_>>(),
            })
        })
        .collect();
    let wall = recording.wall(timeline.start);
    let epoch = wall.and_then(|wall| wall.duration_since(std::time::UNIX_EPOCH).ok());
    let changes = timeline.changes.iter().filter(|change| change.is_gap());
    let changes = changes.map(|change| {
        let time = range(change.without(timeline), short);
        let label = format!("no {} for {time}", verdict::wanted(timeline));
        let earliest = timeline.offset(change.outage.earliest());
        json!([earliest / 1000, change.over(timeline).div_ceil(1000), label])
    });
    let gaps = timeline.gaps.iter();
    let data = json!({
        "span": timeline.span.div_ceil(1000),
        "epoch": epoch.map(|epoch| u64::try_from(epoch.as_micros()).unwrap_or(u64::MAX)),
        "states": State::ALL.iter().map(|it| it.as_str()).collect::<Value>(),
        "kinds": Kind::ALL.iter().map(|it| it.as_str()).collect::<Value>(),
        "problems": Kind::ALL.iter().map(|it| it.is_problem()).collect::<Value>(),
        "order": order(timeline),
        "set": bands(&timeline.set, &mut strings),
        "lanes": lanes,
        "changes": changes.collect::<Vec<_>>(),
        "gaps": gaps.map(|(from, to)| [from / 1000, to / 1000]).collect::<Vec<_>>(),
        "rows": columns(&timeline.rows, &mut strings),
        "strings": strings.all,
    });
    escape(&data.to_string())
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

fn bands(bands: &[Band], strings: &mut Strings) -> String {
    let mut column = Column::default();
    let starts = deltas(bands.iter().map(|band| band.from / 1000));
    for (start, band) in starts.zip(bands) {
        column.extend([start, band.state as u64, strings.index(&band.name)]);
    }
    column.encode()
}

fn columns(rows: &[Row], strings: &mut Strings) -> Value {
    let column = |numbers: &mut dyn Iterator<Item = u64>| numbers.collect::<Column>().encode();
    let micros = |time: Option<u64>| time.map_or(0, |time| time.div_ceil(1000) + 1);
    let lane = |row: &Row| row.lane.map_or(0, |lane| lane as u64 + 1);
    json!({
        "count": rows.len(),
        "at": column(&mut deltas(rows.iter().map(|row| row.at / 1000))),
        "line": column(&mut deltas(rows.iter().map(|row| row.line))),
        "kind": column(&mut rows.iter().map(|row| row.kind as u64)),
        "lane": column(&mut rows.iter().map(lane)),
        "text": column(&mut rows.iter().map(|row| strings.index(&row.text))),
        "time": column(&mut rows.iter().map(|row| micros(row.time))),
        "rtt": column(&mut rows.iter().map(|row| micros(row.rtt))),
    })
}

/// A table of distinct strings.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    indices: HashMap<String, u64>,
}

impl Strings {
    fn index(&mut self, text: &str) -> u64 {
        if let Some(index) = self.indices.get(text) {
            return *index;
        }
        let index = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.indices.insert(text.to_owned(), index);
        index
    }
}

/// Escapes characters that could end a `script` element or a line in it.
fn escape(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}
