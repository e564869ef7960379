//! Server selection, through the engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sdam::{error::SelectionError, selected::Selected, topology::Topology};
use sdam_core::{address::ServerAddress, options::Options};
use sdam_select::{candidate::Candidates, criteria::Criteria};
use serde_json::Value;

use super::{Host, lead::lead_to, stage::Stage, transport::ScriptedTransport};
use crate::selection::file::{InWindowFile, RttFile, SelectionFile};

/// How often a server is selected: enough for every server of a latency window to have its turn.
const DRAWS: usize = 256;

/// Plays a file of `server-selection/tests/server_selection`: leads a running topology to the
/// description and selects from it, at once and by waiting.
pub fn server_selection(host: &Host, file: &Value) -> Result<(), String> {
    select(host, &SelectionFile::server_selection(file)?)
}

/// Plays a file of `max-staleness/tests` like [`server_selection`].
pub fn max_staleness(host: &Host, file: &Value) -> Result<(), String> {
    select(host, &SelectionFile::max_staleness(file)?)
}

fn select(host: &Host, file: &SelectionFile) -> Result<(), String> {
    let criteria = match (&file.criteria, file.expects_error) {
        (Ok(criteria), _) => criteria,
        (Err(_), true) => return Ok(()),
        (Err(error), false) => return Err(format!("should not fail: {error}")),
    };
    let stage = Stage::new(host, ScriptedTransport::slow());
    let mut options = Options::new(Vec::new());
    options.heartbeat_frequency = file.heartbeat_frequency;
    let topology = lead_to(&stage, &file.topology, options)?;
    if file.expects_error {
        check_refusal(&stage, &topology, criteria)?;
    } else {
        check_suitable(&topology, criteria, &file.suitable)?;
        check_window(&topology, criteria, &file.window)?;
        check_waiting(&stage, &topology, criteria, &file.window)?;
    }
    stage.close(&topology)
}

/// Waiting would be in vain, so nobody waits.
fn check_refusal(
    stage: &Stage<'_>,
    topology: &Topology,
    criteria: &Criteria,
) -> Result<(), String> {
    let outcomes = [
        topology.try_select(criteria),
        wait(stage, topology, criteria, Duration::ZERO)?.map(Some),
    ];
    for outcome in outcomes {
        match outcome {
            Err(SelectionError::InvalidCriteria(_)) => {}
            Err(error) => return Err(format!("fails for another reason: {error}")),
            Ok(selected) => {
                let selected = selected.map(|selected| selected.address().clone());
                return Err(format!("should fail, but selected {selected:?}"));
            }
        }
    }
    Ok(())
}

/// What an application's selector is shown are the suitable servers.
fn check_suitable(
    topology: &Topology,
    criteria: &Criteria,
    expected: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let shown = Arc::new(Mutex::new(BTreeSet::new()));
    let log = Arc::clone(&shown);
    let selector = move |suitable: &mut Candidates<'_>| {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend(suitable.iter().map(|candidate| candidate.address.clone()));
    };
    let criteria = criteria.clone().with_selector(Arc::new(selector));
    try_select(topology, &criteria)?;
    let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
    if *shown == *expected {
        return Ok(());
    }
    Err(format!(
        "suitable_servers are {shown:?}, expected {expected:?}"
    ))
}

/// All servers in the window are selected sooner or later, and no others.
fn check_window(
    topology: &Topology,
    criteria: &Criteria,
    expected: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let mut actual = BTreeSet::new();
    for _ in 0..DRAWS {
        let selected = try_select(topology, criteria)?;
        actual.extend(selected.map(|selected| selected.address().clone()));
    }
    if actual == *expected {
        return Ok(());
    }
    Err(format!(
        "in_latency_window are {actual:?}, expected {expected:?}"
    ))
}

/// Whoever waits gets a server of the window, or waits until the time is over.
fn check_waiting(
    stage: &Stage<'_>,
    topology: &Topology,
    criteria: &Criteria,
    window: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let timeout = topology.options().server_selection_timeout;
    let patience = if window.is_empty() {
        timeout
    } else {
        Duration::ZERO
    };
    match wait(stage, topology, criteria, patience)? {
        Ok(selected) if window.contains(selected.address()) => Ok(()),
        Err(SelectionError::Timeout(error)) if window.is_empty() && error.waited == timeout => {
            Ok(())
        }
        Ok(selected) => Err(format!("waiting selects {}", selected.address())),
        Err(error) => Err(format!("waiting fails: {error}")),
    }
}

fn try_select(topology: &Topology, criteria: &Criteria) -> Result<Option<Selected>, String> {
    let outcome = topology.try_select(criteria);
    outcome.map_err(|error| format!("should not fail: {error}"))
}

/// The outcome of a waiting selection during which `patience` passes.
fn wait(
    stage: &Stage<'_>,
    topology: &Topology,
    criteria: &Criteria,
    patience: Duration,
) -> Result<Result<Selected, SelectionError>, String> {
    let (settled, clock) = (stage.settled(), stage.clock.clone());
    let end = stage.now() + patience;
    let meanwhile = async move {
        // The selection was polled first: it waits, and the checks it asked for are under way.
        settled.await;
        clock.advance_to(end);
    };
    let both = futures::future::join(topology.select(criteria), meanwhile);
    let outcome = stage.host.block_on(both);
    stage.settle();
    outcome
        .map(|(outcome, ())| outcome)
        .ok_or_else(|| "the host has not run the selection".to_owned())
}

/// Plays a file of `server-selection/tests/in_window`: operations are in progress on the servers
/// of a running topology, and others come and go.
pub fn in_window(host: &Host, file: &Value) -> Result<(), String> {
    let file = InWindowFile::parse(file)?;
    let stage = Stage::new(host, ScriptedTransport::slow());
    let topology = lead_to(&stage, &file.topology, Options::new(Vec::new()))?;
    let mut in_progress = Vec::new();
    for (address, load) in &file.loads {
        let address = address.clone();
        let only = move |suitable: &mut Candidates<'_>| {
            suitable.retain(|candidate| candidate.address == address);
        };
        let criteria = file.criteria.clone().with_selector(Arc::new(only));
        for _ in 0..*load {
            let selected = try_select(&topology, &criteria)?;
            in_progress.push(selected.ok_or("no server was selected")?);
        }
    }
    let mut chosen: BTreeMap<ServerAddress, u64> = BTreeMap::new();
    for _ in 0..file.iterations {
        let selected = try_select(&topology, &file.criteria)?;
        let selected = selected.ok_or("no server was selected")?;
        *chosen.entry(selected.address().clone()).or_default() += 1;
    }
    for (index, load) in file.loads.values().enumerate() {
        let count = topology.snapshot().operation_count(index);
        if count != *load {
            return Err(format!("{count} operations are in progress, not {load}"));
        }
    }
    drop(in_progress);
    file.compare(&chosen)?;
    stage.close(&topology)
}

/// Plays a file of `server-selection/tests/rtt`: a server takes its time to answer checks.
pub fn rtt(host: &Host, file: &Value) -> Result<(), String> {
    let file = RttFile::parse(file)?;
    let stage = Stage::new(host, ScriptedTransport::default());
    let server = ServerAddress::new("a", 27017);
    let options = Options::new(vec![server.clone()]);
    let topology = stage.start(options, |builder| builder)?;
    let hello = crate::json::document(&serde_json::json!({
        "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25,
    }))?;
    for sample in file.before.into_iter().chain([file.sample]) {
        stage.await_request(&server)?;
        let sample =
            Duration::try_from_secs_f64(sample / 1e3).map_err(|error| error.to_string())?;
        stage.clock.advance_to(stage.now() + sample);
        stage.answer(&server, Some(&hello))?;
    }
    let description = Arc::clone(topology.snapshot().description());
    let rtt = description.server(&server).and_then(|server| server.rtt);
    file.compare(rtt.map(|rtt| rtt.average.as_secs_f64() * 1e3))?;
    stage.close(&topology)
}
