//! Alerts that describe the most important problems, with their start and cause.

use std::time::Duration;

use sdam_core::{
    address::ServerAddress,
    server::ServerType,
    time::Instant,
    topology::{Departure, TopologyType},
};
use sdam_events::facts::Loss;

use super::{
    super::{
        super::model::{Run, Server, brief},
        canvas::{age, running},
    },
    View, table,
};
use crate::{terminal::Tone, time};

/// An alert and its explanation.
pub(super) struct Alert {
    pub(super) tone: Tone,
    /// The parts of the text. Lines may be broken between them.
    pub(super) parts: Vec<String>,
    /// The steps that explain the alert; omitted if space is short.
    pub(super) steps: Vec<String>,
}

/// The time after the start of monitoring at which the alert about a missing primary turns red.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time for which the steps of a failover stay visible after its end.
const EXPLAINED: Duration = Duration::from_secs(120);
/// The maximum number of servers to name in an alert.
const NAMED: usize = 3;

/// Returns the alerts, the most severe first; there is at least one.
pub(super) fn alerts(scene: &View<'_>) -> Vec<Alert> {
    let mut alerts = Vec::new();
    if let Some(note) = scene.note {
        let words = scene.names.shorten(note);
        alerts.push(alert(Tone::Strong, [format!("DEMONSTRATION: {words}")]));
    }
    configuration(scene, &mut alerts);
    outage(scene, &mut alerts);
    silent(scene, &mut alerts);
    servers_down(scene, &mut alerts);
    lagging(scene, &mut alerts);
    last_failover(scene, &mut alerts);
    if alerts.len() == usize::from(scene.note.is_some()) {
        alerts.push(all_is_well(scene));
    }
    alerts
}

fn alert(tone: Tone, parts: impl Into<Vec<String>>) -> Alert {
    Alert { tone, parts: parts.into(), steps: Vec::new() }
}

/// Adds alerts for configuration errors, which waiting does not fix.
fn configuration(scene: &View<'_>, alerts: &mut Vec<Alert>) {
    let topology = &scene.model.topology;
    if let Some(error) = topology.compatibility_error() {
        alerts.push(alert(Tone::Bad, [format!("!! INCOMPATIBLE: {error}")]));
    }
    let mistakes = topology.departures().iter().rev();
    let mut mistakes = mistakes.filter(|it| it.reason.is_mistake());
    if let Some(Departure { address, reason, .. }) = mistakes.next() {
        let (tone, words) = if topology.servers().is_empty() {
            (Tone::Bad, "!! NO SERVER IS LEFT: ")
        } else {
            (Tone::Doubtful, "!  LEFT OUT: ")
        };
        let words = format!("{words}{} {reason}", scene.names.of_server(address));
        alerts.push(alert(tone, [words]));
    }
}

fn outage(scene: &View<'_>, alerts: &mut Vec<Alert>) {
    let model = scene.model;
    if let Some(run) = &model.stopwatch.current {
        let outage = &run.outage;
        let time = time::range(outage.without_primary(model.now), running);
        let cause = match &outage.loss {
            Loss::Failed(error) => brief(error),
            loss => loss.to_string(),
        };
        let words = match &outage.lost {
            Some(lost) => {
                let was = scene.names.of_server(lost);
                format!("!! NO PRIMARY {time}  was {was}")
            }
            None => format!("!! NOT WRITABLE {time}"),
        };
        let parts = vec![words, format!("cause: {cause}")];
        alerts.push(Alert { tone: Tone::Bad, parts, steps: steps(scene, run) });
    } else if !model.facts.is_writable() && !model.topology.servers().is_empty() {
        let waited = model.now.since(model.opened());
        let missing = match model.topology.topology_type() {
            TopologyType::ReplicaSetNoPrimary => "NO PRIMARY",
            TopologyType::Single if model.servers().all(|server| server.answered.is_some()) => {
                "NOT WRITABLE"
            }
            _ => "NO SERVER",
        };
        let silent = model.servers().filter(|server| server.answered.is_none());
        let words = format!(
            "!! {missing} YET {}: {} of {} servers have not answered",
            running(waited),
            silent.count(),
            model.servers().len()
        );
        let tone = if waited < PATIENCE { Tone::Doubtful } else { Tone::Bad };
        alerts.push(alert(tone, [words]));
    }
}

/// Adds an alert for each silent server. If the server is the primary, the alert also says how many
/// members name another primary.
fn silent(scene: &View<'_>, alerts: &mut Vec<Alert>) {
    let model = scene.model;
    for server in model.servers() {
        let Some(silence) = model.silence(server) else {
            continue;
        };
        let address = &server.description.address;
        let name = scene.names.of_server(address);
        let time = age(silence);
        let is_primary = server.description.server_type == ServerType::RsPrimary;
        let named: Vec<_> = model
            .servers()
            .filter_map(|other| other.description.primary.as_ref())
            .filter(|primary| is_primary && *primary != address)
            .collect();
        let (tone, words) = if is_primary {
            (Tone::Bad, format!("?? PRIMARY {name} SILENT for {time},"))
        } else {
            (Tone::Doubtful, format!("?  {name} silent for {time},"))
        };
        let others = match named.last() {
            Some(primary) => {
                let (count, other) = (named.len(), scene.names.of_server(primary));
                format!("{count} of {} name {other}", model.servers().len())
            }
            None => "others answer".to_owned(),
        };
        alerts.push(alert(tone, [words, others]));
    }
}

fn servers_down(scene: &View<'_>, alerts: &mut Vec<Alert>) {
    let model = scene.model;
    let mut down: Vec<&Server> = model
        .servers()
        .filter(|server| !server.description.server_type.is_available())
        .filter(|server| server.error().is_some())
        .filter(|server| !is_lost_primary(scene, server))
        .collect();
    if down.is_empty() {
        return;
    }
    // Name the most recent losses first, because they probably explain the most.
    down.sort_by_key(|server| std::cmp::Reverse(server.since()));
    let (count, all) = (down.len(), model.servers().len());
    let mut parts = vec![format!("!  {count} of {all} DOWN:")];
    parts.extend(down.iter().take(NAMED).map(|server| {
        let name = scene.names.of_server(&server.description.address);
        let error = server.error().map_or(String::new(), brief);
        let time = age(model.now.since(server.since()));
        format!("{name} {error} for {time};")
    }));
    if count > NAMED {
        parts.push(format!("and {} more", count - NAMED));
    }
    if let Some(last) = parts.last_mut() {
        last.truncate(last.trim_end_matches(';').len());
    }
    alerts.push(alert(Tone::Doubtful, parts));
}

/// Returns whether the alert about the current outage already covers the server.
fn is_lost_primary(scene: &View<'_>, server: &Server) -> bool {
    let run = scene.model.stopwatch.current.as_ref();
    run.is_some_and(|run| run.outage.lost.as_ref() == Some(&server.description.address))
}

fn lagging(scene: &View<'_>, alerts: &mut Vec<Alert>) {
    let model = scene.model;
    let lags = model.servers().filter_map(|server| {
        let lag = model.lag(&scene.current, server)?;
        (lag >= table::LAGGING).then_some((lag, &server.description.address))
    });
    if let Some((lag, address)) = lags.max() {
        let words = format!("!  LAG: {} is {} behind", scene.names.of_server(address), age(lag));
        alerts.push(alert(Tone::Doubtful, [words]));
    }
}

fn last_failover(scene: &View<'_>, alerts: &mut Vec<Alert>) {
    let model = scene.model;
    let run = model.stopwatch.last.as_ref().filter(|_| model.stopwatch.current.is_none());
    let Some((run, end)) = run.and_then(|run| Some((run, run.end.as_ref()?))) else {
        return;
    };
    let ago = age(model.now.since(end.writable_again));
    let gap = time::range(end.without_primary(), |time| format!("{} s", seconds(time)));
    let name = |server: &Option<ServerAddress>| match server {
        Some(address) => scene.names.of_server(address).to_owned(),
        None => "none".to_owned(),
    };
    let number = run.number;
    let parts = match (&run.outage.lost, &end.new) {
        (None, None) => vec![format!("OUTAGE {number}: {gap}, {ago} ago")],
        (lost, new) => vec![
            // The new primary may answer just before the old one reports that it stepped down.
            match end.without_primary().at_most {
                Duration::ZERO => format!("FAILOVER {number}: no gap noticed,"),
                _ => format!("FAILOVER {number}: {gap} without a primary,"),
            },
            format!("{} > {}, {ago} ago", name(lost), name(new)),
        ],
    };
    let is_recent = model.now.since(end.writable_again) < EXPLAINED;
    let steps = if is_recent { steps(scene, run) } else { Vec::new() };
    alerts.push(Alert { tone: Tone::Strong, parts, steps });
}

fn all_is_well(scene: &View<'_>) -> Alert {
    let model = scene.model;
    if model.topology.servers().is_empty() {
        return alert(Tone::Doubtful, ["no server is known".to_owned()]);
    }
    let since = age(model.now.since(model.type_since));
    let parts =
        [&*format!("OK  writable for {since},"), "every server answers,", "no failover seen"];
    alert(Tone::Good, parts.map(str::to_owned))
}

/// Lists the steps of a failover with the seconds since the loss, to show which step caused a
/// delay.
fn steps(scene: &View<'_>, run: &Run) -> Vec<String> {
    let outage = &run.outage;
    let after = |at: Instant| format!("+{}", seconds(at.since(outage.noticed)));
    let unseen = outage.noticed.since(outage.last_writable);
    let seen = (!unseen.is_zero()).then(|| format!("last seen writable -{}", seconds(unseen)));
    let mut steps: Vec<String> = seen.into_iter().collect();
    let lost = if matches!(outage.loss, Loss::Replaced(_)) { "replaced" } else { "lost" };
    steps.push(format!("{lost} {}", scene.time(outage.noticed)));
    let cleared = run.pool_cleared.map(|at| format!("pool cleared {}", after(at)));
    let checked = run.all_checked.map(|at| format!("others checked {}", after(at)));
    let named = outage.successor_named.map(|at| format!("named {}", after(at)));
    steps.extend([cleared, checked, named].into_iter().flatten());
    if let Some(end) = &run.end {
        let step = match &end.new {
            Some(new) => format!("{} primary", scene.names.of_server(new)),
            None => "writable".to_owned(),
        };
        steps.push(format!("{step} {}", after(end.writable_again)));
    }
    steps
}

fn seconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64())
}
