//! Runs server selection tests in single-threaded mode.

use std::{collections::BTreeSet, time::Duration};

use sdam::{SelectionError, select::LimitSource};
use sdam_core::{
    address::ServerAddress,
    options::{MIN_HEARTBEAT_FREQUENCY, Options},
};
use sdam_select::criteria::Criteria;
use sdam_testkit::fixed_reply;
use serde_json::Value;

use super::{
    drive::drive_to,
    harness::{Harness, ready},
};
use crate::running::ScanTopology;
use crate::{
    running::{
        deployment::standalone_hello,
        selection::{Selected, check_refusal, check_suitable, check_window, unexpected},
    },
    selection::file::{InWindowFile, RttFile, SelectionFile},
};

/// Checks one file from `server-selection/tests/server_selection` or `max-staleness/tests`. A scan
/// produces the description, and servers are selected from it with and without
/// `serverSelectionTryOnce`.
pub fn select(file: &Value) -> Result<(), String> {
    let file = SelectionFile::parse(file)?;
    let Some(criteria) = file.criteria()? else {
        return Ok(());
    };
    for try_once in [true, false] {
        let harness = Harness::new();
        let mut options = Options::new(Vec::new());
        options.heartbeat_frequency = file.heartbeat_frequency;
        options.server_selection_try_once = Some(try_once);
        let (mut topology, scan) = drive_to(&harness, &file.topology, options)?;
        if file.expects_error {
            let began = harness.now();
            check_refusal(ready(topology.select(criteria))?)?;
            if harness.now() > began {
                return Err("the selection scanned before it failed".to_owned());
            }
        } else {
            // The first failure makes the topology stale, so the second selection scans first.
            for _ in 0..2 {
                check_timeout(&mut topology, scan, criteria, &file.window)?;
            }
            let mut select = |criteria: &Criteria| try_select(&mut topology, criteria);
            check_suitable(&mut select, criteria, &file.suitable)?;
            if try_once {
                check_window(select, criteria, &file.window)?;
            }
        }
        harness.close(&mut topology)?;
    }
    Ok(())
}

/// Checks that a server in the window is selected or, if there is none, that the selection fails in
/// time and for the right reason. A scan must have just ended; `scan` is the duration of a scan.
pub(super) fn check_timeout(
    topology: &mut ScanTopology,
    scan: Duration,
    criteria: &Criteria,
    window: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let timeout = topology.options().server_selection_timeout;
    let (source, timeout) = if topology.options().server_selection_try_once == Some(false) {
        let earliest = timeout.saturating_sub(MIN_HEARTBEAT_FREQUENCY);
        (LimitSource::ServerSelectionTimeout, earliest..=timeout + scan)
    } else {
        let one_scan = MIN_HEARTBEAT_FREQUENCY + scan;
        (LimitSource::TryOnce, one_scan..=one_scan)
    };
    match ready(topology.select(criteria))? {
        Ok(selected) if window.contains(selected.address()) => Ok(()),
        Err(SelectionError::Timeout(error))
            if window.is_empty()
                && error.limit_source == source
                && timeout.contains(&error.waited) =>
        {
            Ok(())
        }
        Ok(selected) => Err(format!(
            "in_latency_window are {window:?}, but {} was selected",
            selected.address()
        )),
        Err(error) => Err(format!("expected {source:?} after {timeout:?}, got: {error}")),
    }
}

fn try_select(topology: &mut ScanTopology, criteria: &Criteria) -> Selected {
    match ready(topology.select(criteria))? {
        Ok(selected) => Ok(Some(selected.address().clone())),
        Err(SelectionError::Timeout(_)) => Ok(None),
        Err(error) => Err(unexpected(&error)),
    }
}

/// Checks how often each server is selected, for a file from `server-selection/tests/in_window`.
pub fn in_window(file: &Value) -> Result<(), String> {
    let file = InWindowFile::parse(file)?;
    let harness = Harness::new();
    let (mut topology, _) = drive_to(&harness, &file.topology, Options::new(Vec::new()))?;
    file.compare(|| try_select(&mut topology, &file.criteria))?;
    harness.close(&mut topology)
}

/// Checks one file from `server-selection/tests/rtt`: the average round-trip time of a server that
/// delays its replies to successive checks.
pub fn rtt(file: &Value) -> Result<(), String> {
    let file = RttFile::parse(file)?;
    let harness = Harness::new();
    let server = ServerAddress::new("a", 27017);
    let mut topology = harness.start(Options::new(vec![server.clone()]), |builder| builder)?;
    let find = |topology: &ScanTopology| topology.description().server(&server).cloned();
    let id = find(&topology).ok_or("the seed is not a server")?.id;
    let hello = standalone_hello(25)?;
    for sample in file.before.into_iter().chain([file.sample]) {
        let sample =
            Duration::try_from_secs_f64(sample / 1e3).map_err(|error| error.to_string())?;
        harness.serve(&server, sample, fixed_reply(Some(hello.clone())));
        ready(topology.check(id))?;
    }
    let rtt = find(&topology).and_then(|server| server.rtt);
    file.compare(rtt.map(|rtt| rtt.average.as_secs_f64() * 1e3))?;
    harness.close(&mut topology)
}
