//! The report as a single HTML file with its style, its script and its data.
//!
//! The verdict is static HTML, so it is visible without scripts and in print. The content security
//! policy forbids all requests, and all scripts except the page's own.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use self::tables::{changes, figures, servers};
use super::{
    data::{self, MAX_LANES},
    html::text,
    overview,
    timeline::{State, Timeline},
    verdict::{Verdict, nanos},
};
use crate::{
    log::{time_of_day, timestamp},
    recording::Recording,
};

mod tables;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/data.js"),
    include_str!("page/lanes.js"),
    include_str!("page/table.js"),
    include_str!("page/main.js"),
);

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
            lanes(&timeline, &clock),
            others,
            servers(&timeline),
            EVENTS.to_owned(),
            footer(recording, &timeline),
        ]
        .concat();
        let data = data::data(recording, &timeline);
        let (style, script) = (hash(STYLE), hash(SCRIPT));
        let title = text(&verdict.headline);
        let class = verdict.severity.as_str();
        let html = format!(
            "{MARK}<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title} \u{2013} sdam report</title>\n<style>{STYLE}</style>\n\
             <body class=\"{class}\">\n{body}\
             <script type=\"application/json\" id=\"data\">{data}</script>\n\
             <script>{SCRIPT}</script>\n"
        );
        Self { headline: verdict.headline, html }
    }
}

/// Returns the source expression that permits an inline element in the content security policy.
fn hash(content: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(content)))
}

/// Returns the time of day in UTC or, if the recording has no wall-clock times, the time since the
/// start.
fn clock(recording: &Recording, timeline: &Timeline, at: u64) -> String {
    let instant = timeline.start + std::time::Duration::from_nanos(at);
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
    let vantage = recording.vantage();
    let vantage = vantage.map_or_else(String::new, |it| format!(" from <b>{}</b>", text(it)));
    let end = timeline.start + std::time::Duration::from_nanos(timeline.span);
    let time = match (recording.wall(timeline.start), recording.wall(end)) {
        (Some(start), Some(end)) => {
            let shown = |wall| timestamp(wall).replace('T', " ").replace('Z', " UTC");
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
        "<header>\n<p class=\"of\">{deployment}, seen{vantage} by a client, {time} ({length})\n\
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

fn lanes(timeline: &Timeline, clock: &impl Fn(u64) -> String) -> String {
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
        "<section id=\"lanes\">\n<h2>What the client saw</h2>\n<ul class=\"keys\">{keys}{MARKS}</ul>\n\
         <div id=\"static\">{}</div>\n{VIEW}{hidden}</section>\n",
        overview::svg(timeline, clock),
        keys = keys.concat()
    )
}

fn footer(recording: &Recording, timeline: &Timeline) -> String {
    let gaps = match timeline.gaps.len() {
        0 => String::new(),
        gaps => format!(
            "<p>The recorder has written nothing for unusually long {gaps} times (hatched); \
             it may have been suspended.\n"
        ),
    };
    let wall = if recording.wall(timeline.start).is_some() {
        "Times of day are those of the recorder's clock at the start of the client; later changes of that clock have no effect."
    } else {
        "The recording does not tell the time of day."
    };
    format!(
        "<footer>\n{gaps}<p>A client that knows no primary cannot write; what other clients saw may differ. {wall} \
         Durations are exact to the microsecond. Round-trip times are the client's moving average after each check.\n\
         <p>Contains host names, addresses and error texts of the deployment, but no credentials and no data. \
         {} events of <span class=\"name\">{}</span>, SHA-256 <code>{}</code>. sdam {}.\n</footer>\n",
        timeline.rows.len(),
        text(&recording.name),
        recording.digest,
        env!("CARGO_PKG_VERSION")
    )
}

/// The legend of the marks.
const MARKS: &str = "<li><svg viewBox=\"0 0 12 12\" class=\"key\"><path class=\"tick\" d=\"M5 2h2v10h-2z\"/></svg> failed heartbeat<li><svg viewBox=\"0 0 12 12\" class=\"key\"><path class=\"clear\" d=\"M6 0L12 6L6 12L0 6z\"/></svg> pool cleared<li><svg viewBox=\"0 0 12 12\" class=\"key\"><path class=\"curve\" d=\"M0 10L4 4L8 8L12 2\"/></svg> round-trip time";

/// The elements that the script fills.
const VIEW: &str = "<div id=\"view\" hidden>\n<div class=\"tools\"><button id=\"out\" title=\"zoom out (-)\">\u{2212}</button><button id=\"in\" title=\"zoom in (+)\">+</button><button id=\"all\" title=\"whole span (0)\">All</button><button id=\"previous\" title=\"previous problem (p)\">\u{2039} problem</button><button id=\"next\" title=\"next problem (n)\">problem \u{203a}</button><span id=\"range\"></span></div>\n<div id=\"plot\" tabindex=\"0\" role=\"application\" aria-label=\"lanes over time; arrows move, plus and minus zoom, n and p go to problems\"><canvas id=\"canvas\"></canvas><div id=\"names\"></div><div id=\"tip\" hidden></div></div>\n</div>\n";

const EVENTS: &str = "<section id=\"events\" hidden>\n<h2>Events</h2>\n<div class=\"tools\"><input id=\"filter\" type=\"search\" placeholder=\"filter: server or text\" aria-label=\"filter\"><span id=\"kinds\"></span><span id=\"count\"></span></div>\n<div id=\"rows\" tabindex=\"0\" role=\"table\" aria-label=\"events\"><div id=\"height\"><div id=\"window\"></div></div></div>\n<pre id=\"detail\">Select an event in a lane or in the list.</pre>\n</section>\n";
