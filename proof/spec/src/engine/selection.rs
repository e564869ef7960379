//! Runs server selection tests through the engine.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use sdam::SelectionError;
use sdam_core::{address::ServerAddress, options::Options};
use sdam_select::{candidate::Candidates, criteria::Criteria};
use serde_json::Value;

use super::{drive::drive_to, harness::Harness};
use crate::host::Host;
use crate::running::Topology;
use crate::{
    running::{
        deployment::standalone_hello,
        selection::{Selected, check_refusal, check_suitable, check_window, unexpected},
    },
    selection::file::{InWindowFile, RttFile, SelectionFile},
};

/// Runs a file from `server-selection/tests/server_selection` or `max-staleness/tests`: brings a
/// running topology to the description, and selects servers both without and with waiting.
pub fn select(host: &Host, file: &Value) -> Result<(), String> {
    let file = SelectionFile::parse(file)?;
    let Some(criteria) = file.criteria()? else {
        return Ok(());
    };
    let harness = Harness::slow(host);
    let mut options = Options::new(Vec::new());
    options.heartbeat_frequency = file.heartbeat_frequency;
    let topology = drive_to(&harness, &file.topology, options)?;
    if file.expects_error {
        check_refusal(topology.try_select(criteria))?;
        check_refusal(wait(&harness, &topology, criteria, Duration::ZERO)?)?;
    } else {
        let select = |criteria: &Criteria| try_select(&topology, criteria);
        check_suitable(select, criteria, &file.suitable)?;
        check_window(select, criteria, &file.window)?;
        check_waiting(&harness, &topology, criteria, &file.window)?;
    }
    harness.close(&topology)
}

/// Checks that a selection that may wait returns a server in `window`, or that it times out if the
/// window is empty.
fn check_waiting(
    harness: &Harness<'_>,
    topology: &Topology,
    criteria: &Criteria,
    window: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let timeout = topology.options().server_selection_timeout;
    let timeout = if window.is_empty() { timeout } else { Duration::ZERO };
    match wait(harness, topology, criteria, timeout)? {
        Ok(selected) if window.contains(&selected) => Ok(()),
        Err(SelectionError::Timeout(error)) if window.is_empty() && error.waited == timeout => {
            Ok(())
        }
        Ok(selected) => Err(format!("a waiting selection returned {selected}")),
        Err(error) => Err(format!("a waiting selection failed: {error}")),
    }
}

fn try_select(topology: &Topology, criteria: &Criteria) -> Selected {
    let selected = topology.try_select(criteria).map_err(|error| unexpected(&error))?;
    Ok(selected.map(|selected| selected.address().clone()))
}

/// Returns the outcome of a waiting selection after `timeout` has passed.
fn wait(
    harness: &Harness<'_>,
    topology: &Topology,
    criteria: &Criteria,
    timeout: Duration,
) -> Result<Result<ServerAddress, SelectionError>, String> {
    let (settled, clock) = (harness.settled(), harness.clock.clone());
    let end = harness.now() + timeout;
    let meanwhile = async move {
        // The selection was polled first, so it is already waiting, and the checks it requested are
        // in progress.
        settled.await;
        clock.advance_to(end);
    };
    let both = futures::future::join(topology.select(criteria), meanwhile);
    let outcome = harness.host.block_on(both);
    harness.settle();
    outcome
        .map(|(outcome, ())| outcome.map(|selected| selected.address().clone()))
        .ok_or_else(|| "the host has not run the selection".to_owned())
}

/// Runs a file from `server-selection/tests/in_window`. Operations on a running topology begin and
/// end while other operations are in progress on its servers.
pub fn in_window(host: &Host, file: &Value) -> Result<(), String> {
    let file = InWindowFile::parse(file)?;
    let harness = Harness::slow(host);
    let topology = drive_to(&harness, &file.topology, Options::new(Vec::new()))?;
    let mut in_progress = Vec::new();
    for (address, load) in &file.loads {
        let address = address.clone();
        let only = move |suitable: &mut Candidates<'_>| {
            suitable.retain(|candidate| candidate.address == address);
        };
        let criteria = file.criteria.clone().with_selector(Arc::new(only));
        for _ in 0..*load {
            let selected = topology.try_select(&criteria).map_err(|error| unexpected(&error))?;
            in_progress.push(selected.ok_or("no server was selected")?);
        }
    }
    file.compare(|| try_select(&topology, &file.criteria))?;
    for (server, load) in topology.snapshot().servers().zip(file.loads.values()) {
        let count = server.operation_count();
        if count != *load {
            return Err(format!("expected {load} operations in progress, got {count}"));
        }
    }
    drop(in_progress);
    harness.close(&topology)
}

/// Runs a file from `server-selection/tests/rtt` with a server that delays its replies.
pub fn rtt(host: &Host, file: &Value) -> Result<(), String> {
    let file = RttFile::parse(file)?;
    let harness = Harness::new(host);
    let server = ServerAddress::new("a", 27017);
    let options = Options::new(vec![server.clone()]);
    let topology = harness.start(options, |builder| builder)?;
    let hello = standalone_hello(25)?;
    for sample in file.before.into_iter().chain([file.sample]) {
        harness.await_request(&server)?;
        let sample =
            Duration::try_from_secs_f64(sample / 1e3).map_err(|error| error.to_string())?;
        harness.clock.advance_to(harness.now() + sample);
        harness.answer(&server, Some(&hello))?;
    }
    let description = Arc::clone(topology.snapshot().description());
    let rtt = description.server(&server).and_then(|server| server.rtt);
    file.compare(rtt.map(|rtt| rtt.average.as_secs_f64() * 1e3))?;
    harness.close(&topology)
}
