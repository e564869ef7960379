//! Tests of server selection, maximum staleness and average round-trip times.

pub(crate) mod file;

use std::collections::BTreeSet;

use sdam_core::{
    address::ServerAddress,
    options::{ConfigError, Options},
    rng::Rng,
    rtt::RttWindow,
};
use sdam_select::{
    candidate::Candidates, choose, criteria::Criteria, explain::explain, latency_window,
    settings::Settings, suitable,
};
use serde_json::Value;

use self::file::{InWindowFile, RttFile, SelectionFile};

/// The number of random selections per file.
const DRAWS: u64 = 64;

/// Checks one file from `server-selection/tests/server_selection` or `max-staleness/tests`.
///
/// Compares suitable servers and the latency window as sets of addresses. A complete selection, and
/// the explanation of this selection, must agree with these sets.
pub fn select(file: &Value) -> Result<(), String> {
    let file = SelectionFile::parse(file)?;
    let mut options = Options::new(Vec::new());
    options.heartbeat_frequency = file.heartbeat_frequency;
    let settings = Settings::new(&options);
    let Some(criteria) = file.criteria()? else {
        return Ok(());
    };
    match suitable(&file.topology, &settings, criteria) {
        _ if !file.expects_error => check_stages(&file, &settings, criteria),
        Err(_) => Ok(()),
        Ok(found) => Err(format!("expected an error, found suitable {:?}", names(&found))),
    }
}

/// Checks how often each server is selected, for a file from `server-selection/tests/in_window`.
pub fn in_window(file: &Value) -> Result<(), String> {
    let file = InWindowFile::parse(file)?;
    let mut rng = Rng::new(0x5DA);
    file.compare(|| {
        let load = |candidate: sdam_select::candidate::Candidate<'_>| {
            file.loads.get(&candidate.address).copied().unwrap_or_default()
        };
        let found =
            choose(&file.topology, &Settings::default(), &file.criteria, load, rng.next_u64());
        let found = found.map_err(|error| error.to_string())?;
        Ok(found.map(|found| found.address.clone()))
    })
}

/// Checks one file from `server-selection/tests/rtt`: the effect of a new sample on a moving
/// average.
pub fn rtt(file: &Value) -> Result<(), String> {
    let file = RttFile::parse(file)?;
    let mut window = file.before.map_or_else(RttWindow::new, RttWindow::with_average);
    window.add_millis(file.sample);
    file.compare(window.average_millis())
}

/// Compares the suitable servers and the latency window with those in the file, and checks that a
/// complete selection agrees with them.
fn check_stages(
    file: &SelectionFile,
    settings: &Settings,
    criteria: &Criteria,
) -> Result<(), String> {
    let topology = &file.topology;
    let describe = |error: ConfigError| format!("unexpected error: {error}");
    let suitable = suitable(topology, settings, criteria).map_err(describe)?;
    let window = latency_window(&suitable, settings.local_threshold);
    for (key, actual, expected) in [
        ("suitable_servers", &suitable, &file.suitable),
        ("in_latency_window", &window, &file.window),
    ] {
        let actual = names(actual);
        if actual != *expected {
            return Err(format!("{key} are {actual:?}, expected {expected:?}"));
        }
    }
    let window = names(&window);
    let explained = explain(topology, settings, criteria);
    let eligible: BTreeSet<_> = explained.eligible().map(|it| it.address.clone()).collect();
    if eligible != window {
        return Err(format!(
            "the explanation has {eligible:?} eligible, expected {window:?}: {explained}"
        ));
    }
    for number in 0..DRAWS {
        let random = sdam_core::rng::mix(number);
        let chosen = choose(topology, settings, criteria, |_| 0, random).map_err(describe)?;
        match chosen {
            None if window.is_empty() => {}
            Some(chosen) if window.contains(&chosen.address) => {}
            chosen => {
                let chosen = chosen.map(|chosen| chosen.address.clone());
                return Err(format!("{chosen:?} was chosen outside of the window {window:?}"));
            }
        }
    }
    Ok(())
}

fn names(candidates: &Candidates<'_>) -> BTreeSet<ServerAddress> {
    let addresses = candidates.iter().map(|candidate| candidate.address.clone());
    addresses.collect()
}

#[cfg(test)]
pub(crate) mod tests;
