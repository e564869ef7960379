//! The report as a single HTML file with its style and without scripts. The content security policy
//! forbids scripts and all requests.

use std::time::Duration;

use sdam_core::time::UnixTime;

use self::tables::{changes, figures, servers};
use super::{
    events,
    html::text,
    overview::{self, MAX_LANES},
    timeline::{State, Timeline},
    verdict::{Verdict, nanos},
};
use crate::{recording::Recording, wall::time_of_day};

mod tables;

const STYLE: &str = include_str!("page/page.css");

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
        let class = verdict.severity.as_str();
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
    let keys: Vec<_> = State::ALL
        .iter()
        .skip(1)
        .map(|state| {
            let (code, name) = (*state as u8, state.as_str());
            format!("<li><svg viewBox=\"0 0 12 12\" class=\"key\"><rect class=\"s{code}\" width=\"12\" height=\"12\"/></svg> {name}")
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

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The legend of the periods without a writable server.
const OUTAGE: &str = "<li><svg viewBox=\"0 0 12 12\" class=\"key\"><rect class=\"outage\" width=\"12\" height=\"12\"/><rect class=\"s5\" width=\"12\" height=\"3\"/></svg> no writable server, with its length";
