//! The figures and tables of a page.

use std::{cmp::Reverse, fmt::Write as _};

use sdam_core::address::ServerAddress;

use crate::{
    duration::short,
    failover::{cause, range},
    report::{
        html::{row, table, text},
        overview::order,
        timeline::{Change, Lane, Timeline},
        verdict::{nanos, without},
    },
};

/// The number of failovers that are shown in detail.
const MAX_CHANGES: usize = 20;
/// The number of failovers that are shown above the picture.
const FIRST_CHANGES: usize = 3;

/// Returns the key figures, each with its value, its name, and whether it indicates a problem.
pub(super) fn figures(timeline: &Timeline) -> Vec<(String, &'static str, bool)> {
    let without = without(timeline);
    let sum = |of: fn(&Lane) -> u64| timeline.lanes.iter().map(of).sum::<u64>();
    let count = |count: u64, one, many| (count.to_string(), if count == 1 { one } else { many });
    let bad = |(value, name), is_bad| (value, name, is_bad);
    let lost = timeline.lanes.iter().filter(|lane| lane.losses > 0).count();
    let (failed, cleared) = (sum(|lane| lane.failed), sum(|lane| lane.clears));
    let changes = timeline.changes.len() as u64;
    vec![
        (range(without, short), "without a writable server", !without.at_most.is_zero()),
        bad(count(changes, "primary change", "primary changes"), false),
        (format!("{lost} of {}", timeline.lanes.len()), "servers lost", lost > 0),
        bad(count(failed, "failed heartbeat", "failed heartbeats"), failed > 0),
        bad(count(cleared, "pool cleared", "pools cleared"), cleared > 0),
    ]
}

/// Returns two sections about failovers: the longest ones, for the place above the picture, and the
/// others.
pub(super) fn changes(timeline: &Timeline, clock: &impl Fn(u64) -> String) -> [String; 2] {
    let mut longest: Vec<&Change> = timeline.changes.iter().collect();
    longest.sort_by_key(|change| Reverse(change.without(timeline).at_most));
    let more = longest.len().saturating_sub(MAX_CHANGES);
    longest.truncate(MAX_CHANGES);
    let others = longest.split_off(longest.len().min(FIRST_CHANGES));
    let many = timeline.changes.len() > 1;
    let list = |mut shown: Vec<&Change>| {
        shown.sort_by_key(|change| change.outage.noticed);
        let shown = shown.into_iter().map(|change| failover(change, timeline, clock, many));
        shown.collect::<String>()
    };
    let section = |title: &str, changes: String, note: String| match &*changes {
        "" => String::new(),
        _ => format!("<section>\n<h2>{title}</h2>\n{changes}{note}</section>\n"),
    };
    let note = |count: usize, what: &str| match count {
        0 => String::new(),
        count => format!("<p class=\"note\">{count} shorter changes {what}.\n"),
    };
    let below = note(others.len() + more, "are below the picture");
    [
        section("Where the time went", list(longest), below),
        section("Shorter changes", list(others), note(more, "are not listed")),
    ]
}

fn failover(
    change: &Change,
    timeline: &Timeline,
    clock: &impl Fn(u64) -> String,
    many: bool,
) -> String {
    let splits = change.splits(timeline);
    let total: u64 = splits.iter().map(|split| split.time).sum();
    let mut x = 0;
    let mut bar = String::new();
    let mut rows = String::new();
    for split in &splits {
        // Make even the shortest phase visible.
        let width = (u128::from(split.time) * 1000 / u128::from(total.max(1))).max(2);
        // Writing to a string cannot fail.
        let _ = write!(
            bar,
            "<rect class=\"{}\" x=\"{x}\" y=\"0\" width=\"{width}\" height=\"14\"/>",
            split.class
        );
        x += width;
        rows += &row(&[
            format!(
                "<svg viewBox=\"0 0 10 10\" class=\"key\"><rect class=\"{}\" width=\"10\" height=\"10\"/></svg> {}",
                split.class, split.name
            ),
            nanos(split.time),
            clock(split.from),
            split.meaning.clone(),
        ]);
    }
    let name = |address: Option<&ServerAddress>| {
        address.map_or_else(|| "none".to_owned(), |it| text(it.as_str()))
    };
    let new = change.end.as_ref().and_then(|end| end.new.as_ref());
    let title = format!(
        "<h3>{}: {} \u{2192} {}, {} without</h3>\n",
        clock(timeline.offset(change.outage.noticed)),
        name(change.outage.lost.as_ref()),
        name(new),
        range(change.without(timeline), short)
    );
    let cause = format!("<p>Cause: {}.\n", text(&cause(&change.outage, short)));
    let cleared = change.cleared.map_or_else(String::new, |at| {
        let (lost, at) = (name(change.outage.lost.as_ref()), clock(timeline.offset(at)));
        format!("<p>The pool of {lost} was cleared at {at}.\n")
    });
    let head = if many { title + &cause } else { String::new() };
    let table = match &*splits {
        [] => String::new(),
        _ => table("splits", &["part", "time", "from", "meaning"], &rows),
    };
    let bar = match &*splits {
        // Omit a bar with a single phase, because it would show nothing.
        [] | [_] => String::new(),
        _ => format!(
            "<svg class=\"bar\" viewBox=\"0 0 {x} 14\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"parts of the failover\">{bar}</svg>\n"
        ),
    };
    format!("{head}{cleared}{bar}{table}")
}

pub(super) fn servers(timeline: &Timeline) -> String {
    let rows: String =
        order(timeline).into_iter().map(|index| server(&timeline.lanes[index])).collect();
    let headings = [
        "server",
        "at the end",
        "lost",
        "unreachable",
        "heartbeats",
        "failed",
        "RTT median",
        "RTT range",
        "pool clears",
        "last error",
    ];
    let table = table("servers", &headings, &rows);
    format!("<section>\n<h2>Servers</h2>\n{table}</section>\n")
}

fn server(lane: &Lane) -> String {
    let mut rtts = lane.rtts.clone();
    rtts.sort_unstable();
    let dash = || "\u{2013}".to_owned();
    let (median, range) = match (rtts.first(), rtts.get(rtts.len() / 2), rtts.last()) {
        (Some(first), Some(median), Some(last)) => {
            (nanos(*median), format!("{} to {}", nanos(*first), nanos(*last)))
        }
        _ => (dash(), dash()),
    };
    let end = lane.bands.last().map_or("", |band| &band.name);
    row(&[
        format!("<b>{}</b>", text(&lane.address)),
        if end.is_empty() { "not a member".to_owned() } else { text(end) },
        lane.losses.to_string(),
        nanos(lane.lost),
        (lane.succeeded + lane.failed).to_string(),
        lane.failed.to_string(),
        median,
        range,
        lane.clears.to_string(),
        lane.error.as_deref().map_or_else(dash, text),
    ])
}
