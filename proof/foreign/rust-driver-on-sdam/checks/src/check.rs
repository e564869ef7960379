//! The short checks of the driver's public behaviour, on a real replica set of three members.

mod change_streams;
mod crud;
mod errors;
mod events;
mod failover;
mod lifecycle;
mod pools;
mod selection;
mod set;
mod transactions;

use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, LocalBoxFuture};
use tokio::time::timeout;

pub use self::set::{Observed, Set};
use crate::Result;

/// The time limit of one check.
const LIMIT: Duration = Duration::from_secs(180);

type Check = for<'a> fn(&'a Set) -> LocalBoxFuture<'a, Result<()>>;

const CHECKS: [(&str, Check); 19] = [
    ("crud", |set| crud::all_operations(set).boxed_local()),
    ("transaction-commit", |set| transactions::committed(set).boxed_local()),
    ("transaction-abort", |set| transactions::aborted(set).boxed_local()),
    ("transaction-retry", |set| transactions::retried(set).boxed_local()),
    ("change-stream", |set| change_streams::through_a_step_down(set).boxed_local()),
    ("retry-step-down", |set| failover::through_a_step_down(set).boxed_local()),
    ("retry-kill", |set| failover::through_a_kill(set).boxed_local()),
    ("sdam-events", |set| events::sdam_in_order(set).boxed_local()),
    ("cmap-events", |set| events::cmap_in_order(set).boxed_local()),
    ("pool-cleared", |set| pools::cleared_by_a_kill(set).boxed_local()),
    ("warm-pool", |set| pools::warmed(set).boxed_local()),
    ("predicate", |set| selection::by_predicate(set).boxed_local()),
    ("tags", |set| selection::by_tags(set).boxed_local()),
    ("shutdown", |set| lifecycle::shutdown(set).boxed_local()),
    ("shutdown-immediate", |set| lifecycle::shutdown_immediate(set).boxed_local()),
    ("drop", |set| lifecycle::dropped(set).boxed_local()),
    ("metadata", |set| lifecycle::appended_metadata(set).boxed_local()),
    ("selection-timeout", |set| errors::selection_timeout(set).boxed_local()),
    ("refused-options", |set| errors::refused_criteria(set).boxed_local()),
];

/// Runs the named checks, or all.
///
/// # Errors
/// If a check fails, or a name is unknown.
pub fn run(names: &[String]) -> Result<()> {
    if let Some(name) = names.iter().find(|name| CHECKS.iter().all(|(known, _)| known != name)) {
        return Err(format!("there is no check {name}").into());
    }
    let Some(set) = Set::start()? else {
        return Ok(());
    };
    let selected: Vec<_> = CHECKS
        .iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name))
        .collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let failed: Vec<_> = selected
        .iter()
        .filter(|(name, check)| !runtime.block_on(passes(name, check(&set))))
        .map(|(name, _)| *name)
        .collect();
    println!("{} of {} checks passed", selected.len() - failed.len(), selected.len());
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("failed: {}", failed.join(", ")).into())
}

async fn passes(name: &str, check: LocalBoxFuture<'_, Result<()>>) -> bool {
    let started = Instant::now();
    let result = timeout(LIMIT, check)
        .await
        .unwrap_or_else(|_| Err(format!("it did not end in {LIMIT:?}").into()));
    match &result {
        Ok(()) => println!("ok      {name} ({:.2?})", started.elapsed()),
        Err(error) => println!("FAILED  {name}\n{error}"),
    }
    result.is_ok()
}
