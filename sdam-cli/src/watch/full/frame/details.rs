//! Draws the details of a server.

use ratatui::layout::Rect;
use sdam_select::explain::Verdict;

use super::{
    super::{
        super::model::{Mode, Model, Server, state},
        canvas::{Canvas, age, line, millis, width, wrap},
    },
    View,
    head::term_of,
    heading, rest,
    table::{self, Row},
};
use crate::terminal::Tone;

/// The width of the labels.
const LABEL: usize = 9;

/// Draws as many details of a server as fit.
pub(super) fn details(
    canvas: &mut Canvas<'_>,
    area: Rect,
    scene: &View<'_>,
    row: Option<&Row<'_>>,
) {
    let Some(row) = row else {
        heading(canvas, line(area, 0), "details: no server");
        return;
    };
    let address = row.server.description.address.as_str();
    heading(canvas, line(area, 0), address);
    let body = rest(area, 1, area.height.saturating_sub(1));
    let mut number = 0;
    for (label, tone, words) in facts(scene, row) {
        let room = usize::from(area.width).saturating_sub(LABEL + 1);
        for (index, words) in wrap(&words, room.max(1)).into_iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            let padding = " ".repeat((LABEL + 1).saturating_sub(width(label)));
            canvas.texts(
                line(body, number),
                &[(Tone::Faint, label), (Tone::Normal, &padding), (tone, &words)],
            );
            number += 1;
        }
    }
}

type Fact = (&'static str, Tone, String);

fn facts(scene: &View<'_>, row: &Row<'_>) -> Vec<Fact> {
    let (model, server) = (scene.model, row.server);
    let mut facts = vec![role(model, server)];
    facts.extend(trouble(scene, server));
    facts.extend([chosen(scene, row), answer(model, server), times(server), pool(model, server)]);
    facts.extend(replication(scene, server));
    facts.extend(identity(server));
    facts.push(roles(scene, server));
    facts
}

fn role(model: &Model, server: &Server) -> Fact {
    let role = server.description.server_type;
    let since = age(model.now.since(server.since()));
    let flaps = model.flaps(Some(&server.description.address));
    let losses = model.facts.server(&server.description.address);
    let losses = losses.map_or(0, |facts| facts.losses);
    let words = format!("{} for {since}; losses: {losses}, in the last hour {flaps}", state(role));
    ("state", Tone::Normal, words)
}

fn trouble(scene: &View<'_>, server: &Server) -> Option<Fact> {
    let now = scene.model.now;
    let Some(trouble) = &server.trouble else {
        // An application may have reported an error although no check failed.
        let error = server.description.error.as_ref()?;
        return Some(("error", Tone::Bad, format!("{error:#}")));
    };
    let error = &trouble.error;
    let since = scene.time(trouble.since);
    Some(if trouble.is_over {
        let words = format!("{error:#} ({} ago, over)", age(now.since(trouble.last)));
        ("error", Tone::Faint, words)
    } else {
        let words = format!("{error:#} ({} checks since {since})", trouble.checks);
        ("error", Tone::Bad, words)
    })
}

fn chosen(scene: &View<'_>, row: &Row<'_>) -> Fact {
    let mode = scene.state.preference.mode;
    let (tone, why) = row.why(scene.model);
    let words = match &row.verdict {
        Some(Verdict::Eligible { .. }) => format!("for {mode}: in the latency window"),
        Some(Verdict::Rejected(rejection)) if row.server.error().is_none() => {
            format!("for {mode}: {rejection}")
        }
        _ => format!("for {mode}: no, {why}"),
    };
    ("chosen", tone, words)
}

fn answer(model: &Model, server: &Server) -> Fact {
    let seen = match server.answered {
        None => "never answered".to_owned(),
        Some(at) => format!("{} ago", age(model.now.since(at))),
    };
    let mode = match server.mode.filter(|_| server.current_trouble().is_none()) {
        Some(Mode::Streaming) => "; it streams its changes",
        Some(Mode::Polling) => "; it is polled",
        None => "",
    };
    ("hello", Tone::Normal, format!("{seen}{mode}"))
}

fn times(server: &Server) -> Fact {
    let Some(rtt) = server.description.rtt else {
        return ("rtt", Tone::Faint, "unknown".to_owned());
    };
    // The minimum is 0 until there are enough samples.
    let minimum = Some(rtt.minimum).filter(|minimum| !minimum.is_zero());
    let words = format!(
        "average {} ms, minimum {}, p90 {}",
        millis(rtt.average),
        minimum.map_or("-".to_owned(), millis),
        millis(rtt.p90)
    );
    ("rtt", Tone::Normal, words)
}

/// Describes the server's pool, in which `sdam watch` itself opens no connections.
fn pool(model: &Model, server: &Server) -> Fact {
    let pool = &server.pool;
    let ready = if pool.is_ready { "ready" } else { "paused" };
    let mut words = format!("generation {}, {ready}", pool.generation);
    if let Some((at, cause)) = &pool.cleared {
        let ago = age(model.now.since(*at));
        words = format!("{words}; cleared {ago} ago: {cause:#}");
    }
    let words = format!("{words} (a watcher has no pooled connections of its own)");
    ("pool", Tone::Normal, words)
}

fn replication(scene: &View<'_>, server: &Server) -> Option<Fact> {
    let lag = scene.model.lag(&scene.current, server)?;
    let tone = if lag >= table::LAGGING { Tone::Doubtful } else { Tone::Normal };
    let words = format!("{:.1} s behind the newest write", lag.as_secs_f64());
    Some(("lag", tone, words))
}

/// Lists the properties that the server reports.
fn identity(server: &Server) -> Vec<Fact> {
    let description = &server.description;
    let mut facts = Vec::new();
    if let Some(me) = &description.me
        && *me != description.address
    {
        let words = format!("calls itself {me}");
        facts.push(("me", Tone::Doubtful, words));
    }
    if !description.tags.is_empty() {
        facts.push(("tags", Tone::Normal, table::tags(server)));
    }
    let mut words = Vec::new();
    if let Some(version) = description.election.set_version {
        words.push(format!("setVersion {version}"));
    }
    if let Some(term) = description.election.election_id.and_then(term_of) {
        words.push(format!("term {term}"));
    }
    if let Some(primary) = &description.primary {
        words.push(format!("sees {primary} as primary"));
    }
    if description.server_type.is_available() {
        let wire = description.wire_versions;
        words.push(format!("wire {}-{}", wire.min, wire.max));
    }
    if !words.is_empty() {
        facts.push(("says", Tone::Normal, words.join(", ")));
    }
    facts
}

fn roles(scene: &View<'_>, server: &Server) -> Fact {
    let role = |(at, role): &(_, _)| {
        let mut time = scene.time(*at);
        time.truncate("12:34:56".len());
        format!("{time} {}", state(*role))
    };
    let roles: Vec<String> = server.roles.iter().rev().map(role).collect();
    ("history", Tone::Normal, roles.join(", "))
}
