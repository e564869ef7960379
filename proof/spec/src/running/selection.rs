//! Checks of selections that apply to both modes, multi-threaded and single-threaded.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use sdam::SelectionError;
use sdam_core::address::ServerAddress;
use sdam_select::{candidate::Candidates, criteria::Criteria};

use super::lock;

/// The server that is selected without waiting, or `None` if no server is suitable.
pub(crate) type Selected = Result<Option<ServerAddress>, String>;

/// The number of selections. It is large enough for every server in a latency window to be
/// selected.
const DRAWS: usize = 256;

/// Checks that a selection with invalid criteria fails with the right error.
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

/// Checks that every server in the window is selected, and no other server.
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
