//! The expected results of selection in both modes.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use sdam::SelectionError;
use sdam_core::address::ServerAddress;
use sdam_select::{candidate::Candidates, criteria::Criteria};

use super::lock;

/// The currently selected server; `None` if none is suitable.
pub(crate) type Selected = Result<Option<ServerAddress>, String>;

/// The number of selections: enough to select every server of a latency window.
const DRAWS: usize = 256;

/// Checks that a selection that cannot succeed fails without waiting.
pub(crate) fn check_refusal<S: Debug>(outcome: Result<S, SelectionError>) -> Result<(), String> {
    match outcome {
        Err(SelectionError::InvalidCriteria(_)) => Ok(()),
        Err(error) => Err(format!("failed with an unexpected error: {error}")),
        Ok(selected) => Err(format!("expected an error, selected {selected:?}")),
    }
}

/// Checks that a custom selector receives exactly the suitable servers.
pub(crate) fn check_suitable(
    mut select: impl FnMut(&Criteria) -> Selected,
    criteria: &Criteria,
    expected: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let received = Arc::new(Mutex::new(BTreeSet::new()));
    let log = Arc::clone(&received);
    let selector = move |suitable: &mut Candidates<'_>| {
        let mut log = lock(&log);
        log.extend(suitable.iter().map(|candidate| candidate.address.clone()));
    };
    let criteria = criteria.clone().with_selector(Arc::new(selector));
    select(&criteria)?;
    let received = lock(&received);
    if *received == *expected {
        return Ok(());
    }
    Err(format!("suitable_servers are {received:?}, expected {expected:?}"))
}

/// Checks that exactly the servers of the window are selected.
pub(crate) fn check_window(
    mut select: impl FnMut(&Criteria) -> Selected,
    criteria: &Criteria,
    expected: &BTreeSet<ServerAddress>,
) -> Result<(), String> {
    let mut actual = BTreeSet::new();
    for _ in 0..DRAWS {
        actual.extend(select(criteria)?);
    }
    if actual == *expected {
        return Ok(());
    }
    Err(format!("in_latency_window are {actual:?}, expected {expected:?}"))
}

pub(crate) fn unexpected(error: &SelectionError) -> String {
    format!("unexpected error: {error}")
}
