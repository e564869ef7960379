//! Timelines, which show failures in a human-readable form.

use std::{fmt::Write, time::Duration};

use sdam_core::{deployment::Input, event::EventKind, time::Instant};

use crate::{plan::Plan, run::Failure};

/// Formats what happened before and just after the violation, in order of time: faults, actions of
/// applications, and published events.
pub fn timeline(plan: &Plan, failure: &Failure) -> String {
    let mut lines: Vec<(Instant, u8, String)> = Vec::new();
    for (at, step) in &plan.scenario.steps {
        lines.push((Instant::EPOCH + *at, 0, format!("!! {step}")));
    }
    for (at, note) in &failure.notes {
        lines.push((*at, 1, format!("-- {note}")));
    }
    for event in &failure.events {
        if let Some(line) = line(&event.kind) {
            lines.push((event.at, 2, format!("   {line}")));
        }
    }
    let violation = &failure.violation;
    lines.push((violation.at, 3, format!("** {}", violation.message)));
    // The lines of each kind are already in order. The stable sort preserves that order.
    lines.sort_by_key(|(at, kind, _)| (*at, *kind));
    let mut text = format!("seed {} ({}): {plan}\n", plan.seed, plan.kind);
    for (at, _, line) in lines {
        let at: Duration = at.since(Instant::EPOCH);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:>11.6} {line}", at.as_secs_f64());
    }
    text
}

fn line(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::TopologyDescriptionChanged { new, .. } => {
            let servers = new.servers().iter();
            let servers: Vec<String> = servers
                .map(|server| format!("{}={}", server.address, server.server_type))
                .collect();
            let election = new.max_election();
            format!("topology {} {} {election}", new.topology_type(), servers.join(" "))
        }
        EventKind::ServerDescriptionChanged { previous, new } => {
            let error = new.error.as_ref();
            let error = error.map_or_else(String::new, |error| format!(" ({error:#})"));
            let (before, after) = (previous.server_type, new.server_type);
            format!("server {} {} {before} -> {after}{error}", new.id, new.address)
        }
        EventKind::ServerHeartbeatStarted(heartbeat) => {
            let awaited = if heartbeat.awaited { ", awaited" } else { "" };
            format!(
                "check of {} starts on #{}{awaited}",
                heartbeat.address, heartbeat.connection.driver
            )
        }
        EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
            format!("check of {} succeeds", heartbeat.address)
        }
        EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
            format!("check of {} fails: {failure:#}", heartbeat.address)
        }
        EventKind::PoolCleared { server, clear, .. } => {
            format!("pool of {server} cleared, generation {}", clear.generation)
        }
        EventKind::Input(own) => match &own.input {
            Input::Deserted { server } => format!("the task of {server} was dropped"),
            _ => return None,
        },
        EventKind::RttMeasured { .. } => return None,
        EventKind::ServerSelectionWaiting { selection, remaining, .. } => {
            format!("waits for {} up to {remaining:?}", selection.selector)
        }
        EventKind::ServerSelectionSucceeded { selection, address, .. } => {
            format!("selects {address} for {}", selection.selector)
        }
        EventKind::ServerSelectionFailed { selection, reason, .. } => {
            format!("{}: {}", selection.selector, reason.as_str())
        }
        other => match other.address() {
            Some(address) => format!("{} {address}", other.name().as_str()),
            None => other.name().as_str().to_owned(),
        },
    })
}
