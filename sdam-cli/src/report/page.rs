//! The report as a single HTML file with its style and without scripts. The content security policy
//! forbids scripts and all requests.

use std::{cmp::Reverse, fmt::Write as _, time::Duration};

use sdam_core::{address::ServerAddress, time::UnixTime};
use strum::VariantArray as _;

use super::{
    events,
    overview::{self, MAX_LANES, order},
    timeline::{BandState, Change, Lane, Timeline},
    verdict::{Verdict, nanos, without},
};
use crate::{
    recording::Recording,
    time::{cause, range, short, time_of_day},
};

const STYLE: &str = include_str!("page/page.css");

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The legend of the periods without a writable server.
const OUTAGE: &str = "<li><svg viewBox=\"0 0 12 12\" class=\"key\"><rect class=\"outage\" width=\"12\" height=\"12\"/><rect class=\"s5\" width=\"12\" height=\"3\"/></svg> no writable server, with its length";

/// The number of failovers that are shown in detail.
const MAX_CHANGES: usize = 20;
/// The number of failovers that are shown above the picture.
const FIRST_CHANGES: usize = 3;

/// The beginning of every page, which is used to recognize older reports.
pub(super) const MARK: &str = "<!DOCTYPE html>\n<!-- sdam report -->\n";

/// A page and its headline.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) headline: String,
    pub(super) html: String,
}

impl Page {
    pub(super) fn of(recording: &Recording) -> Self {
        let timeline = Timeline::of(recording);
        let clock = |at: u64| clock(recording, &timeline, at);
        let verdict = Verdict::of(&timeline, &clock);
        let [longest, others] = changes(&timeline, &clock);
        let body = [
            header(recording, &timeline, &verdict),
            longest,
            lanes(recording, &timeline, &clock),
            others,
            servers(&timeline),
            events::section(&timeline, &clock),
            footer(recording, &timeline),
        ]
        .concat();
        let title = text(&verdict.headline);
        let class = verdict.severity;
        let html = format!(
            "{MARK}<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title} \u{2013} sdam report</title>\n<style>{STYLE}</style>\n\
             <body class=\"{class}\">\n{body}"
        );
        Self { headline: verdict.headline, html }
    }
}

/// Escapes a string for use in HTML elements, and in attributes with double quotes.
pub(super) fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Control characters are not allowed in HTML.
            letter if letter.is_control() && letter != '\n' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Returns a table with the given `headings`; `rows` must be HTML.
pub(super) fn table(class: &str, headings: &[&str], rows: &str) -> String {
    let headings: String = headings.iter().flat_map(|it| ["<th>", it]).collect();
    format!(
        "<div class=\"wide\"><table class=\"{class}\"><thead><tr>{headings}<tbody>\n{rows}</table></div>\n"
    )
}

/// Returns a table row; `cells` contain HTML.
fn row(cells: &[String]) -> String {
    let cells: String = cells.iter().flat_map(|cell| ["<td>", cell]).collect();
    format!("<tr>{cells}\n")
}

/// Returns the time of day in UTC or, if the recording has no wall-clock times, the time since the
/// start.
fn clock(recording: &Recording, timeline: &Timeline, at: u64) -> String {
    let instant = timeline.start + Duration::from_nanos(at);
    match recording.wall(instant) {
        Some(wall) => time_of_day(wall).replace('Z', " UTC"),
        None => format!("+{}", nanos(at)),
    }
}

fn header(recording: &Recording, timeline: &Timeline, verdict: &Verdict) -> String {
    let deployment = match &recording.options.replica_set {
        Some(name) => format!("Replica set <b>{}</b>", text(name)),
        None => "Deployment of ".to_owned() + &seeds(recording),
    };
    let end = timeline.start + Duration::from_nanos(timeline.span);
    let time = match (recording.wall(timeline.start), recording.wall(end)) {
        (Some(start), Some(end)) => {
            let shown = |wall: UnixTime| wall.to_string().replace('T', " ").replace('Z', " UTC");
            format!("{} to {}", shown(start), shown(end))
        }
        _ => "at an unknown time".to_owned(),
    };
    let length = nanos(timeline.span);
    let figures: Vec<_> = figures(timeline)
        .iter()
        .map(|(value, name, is_bad)| {
            let class = if *is_bad { " class=\"bad\"" } else { "" };
            format!("<li{class}><b>{}</b> {name}", text(value))
        })
        .collect();
    let warning = recording.defect.as_ref().map_or_else(String::new, |defect| {
        format!("<p class=\"note\">The recording is incomplete: {}.\n", text(defect))
    });
    format!(
        "<header>\n<p class=\"of\">{deployment}, seen by a client, {time} ({length})\n\
         <h1>{}</h1>\n<p class=\"details\">{}\n<ul class=\"figures\">{figures}</ul>\n{warning}</header>\n",
        text(&verdict.headline),
        text(&verdict.details),
        figures = figures.concat()
    )
}

fn seeds(recording: &Recording) -> String {
    let seeds: Vec<_> = recording.options.seeds.iter().take(3).collect();
    let seeds: Vec<_> = seeds.iter().map(|seed| text(seed.as_str())).collect();
    seeds.join(", ")
}

fn lanes(recording: &Recording, timeline: &Timeline, clock: &impl Fn(u64) -> String) -> String {
    let wall = recording.wall(timeline.start);
    let day =
        Duration::from_millis(wall.unwrap_or_default().as_millis()).as_nanos() % DAY.as_nanos();
    let day = u64::try_from(day).unwrap_or_default();
    let keys: Vec<_> = BandState::VARIANTS
        .iter()
        .skip(1)
        .map(|state| {
            let code = *state as u8;
            format!("<li><svg viewBox=\"0 0 12 12\" class=\"key\"><rect class=\"s{code}\" width=\"12\" height=\"12\"/></svg> {state}")
        })
        .collect();
    let hidden = timeline.lanes.len().saturating_sub(MAX_LANES);
    let hidden = match hidden {
        0 => String::new(),
        hidden => format!("<p class=\"note\">{hidden} more servers are not drawn.\n"),
    };
    format!(
        "<section class=\"lanes\">\n<h2>What the client saw</h2>\n<ul class=\"keys\">{keys}{OUTAGE}</ul>\n\
         <div class=\"wide\">{}</div>\n{hidden}</section>\n",
        overview::svg(timeline, clock, day),
        keys = keys.concat()
    )
}

fn footer(recording: &Recording, timeline: &Timeline) -> String {
    let gaps = match timeline.gaps.len() {
        0 => String::new(),
        gaps => format!(
            "<p>The recorder has written nothing for unusually long {gaps} times (faded in the picture); \
             it may have been suspended.\n"
        ),
    };
    let wall = if recording.wall(timeline.start).is_some() {
        "Times of day are those of the recorder's clock, which may have been set in between."
    } else {
        "The recording does not tell the time of day."
    };
    format!(
        "<footer>\n{gaps}<p>A client that knows no primary cannot write; what other clients saw may differ. {wall} \
         Durations are exact to the microsecond. Round-trip times are the client's moving average after each check.\n\
         <p>Contains host names, addresses and error texts of the deployment, but no credentials and no data. \
         {} events of <span class=\"name\">{}</span>, SHA-256 <code>{}</code>. sdam {}.\n</footer>\n",
        timeline.events,
        text(&recording.name),
        recording.digest,
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the key figures, each with its value, its name, and whether it indicates a problem.
fn figures(timeline: &Timeline) -> Vec<(String, &'static str, bool)> {
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

/// Returns two sections about failovers: the longest failovers, to be shown above the picture, and
/// the other failovers.
fn changes(timeline: &Timeline, clock: &impl Fn(u64) -> String) -> [String; 2] {
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

fn servers(timeline: &Timeline) -> String {
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
