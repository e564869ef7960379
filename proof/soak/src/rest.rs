//! Rest points: moments without traffic and faults, at which the process is counted.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::leak::Counters;
use crate::process::{self, Tasks};
use crate::worker::{Shared, Worker};

/// The maximum time until everything is quiet after the last fault was healed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time for which the counters must not change at the first rest point. It is longer than
/// several intervals between checks, and than the time for which a runtime keeps an idle thread.
const STEADY: Duration = Duration::from_secs(15);

/// All that is counted.
pub(crate) struct Counted {
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) tasks: Tasks,
}

impl Counted {
    /// Waits until the counters are within those of the first rest point. Without those, waits
    /// until the counters are steady.
    ///
    /// # Errors
    /// If the run does not become quiet, or if counters stay above the limits. The error names them.
    pub(crate) fn rest(&self, first: Option<&Counters>) -> Result<Counters, String> {
        let Some(first) = first else {
            return self.steady();
        };
        until(PATIENCE, || {
            let now = self.counters()?;
            if now.is_within(first) { Ok(now) } else { Err(format!("{now}, at first {first}")) }
        })
    }

    fn steady(&self) -> Result<Counters, String> {
        let mut last = (Counters::default(), Instant::now());
        until(PATIENCE + STEADY, || {
            let now = self.counters()?;
            if now != last.0 {
                last = (now, Instant::now());
            }
            if last.1.elapsed() >= STEADY { Ok(now) } else { Err(format!("{now}, not steady")) }
        })
    }

    /// Returns the counters if everything is quiet.
    fn counters(&self) -> Result<Counters, String> {
        if !self.shared.gate.is_empty() {
            return Err("operations are under way".to_owned());
        }
        let idle = self.workers.iter().map(|worker| {
            let (id, name) = (worker.id, &worker.deployment.name);
            worker.idle_connections().map_err(|reason| format!("client {id} of {name}: {reason}"))
        });
        let idle: usize = idle.sum::<Result<_, _>>()?;
        let failed = |error: std::io::Error| error.to_string();
        Ok(Counters {
            descriptors: process::descriptors().map_err(failed)?.saturating_sub(idle),
            threads: process::threads().map_err(failed)?,
            tasks: self.tasks.alive(),
        })
    }

    /// Waits until each client of a deployment has written twice, so that at least one write began
    /// after the call. Returns how long this took.
    ///
    /// # Errors
    /// The client that has not.
    pub(crate) fn recovered(&self, deployment: &str) -> Result<Duration, String> {
        let begin = Instant::now();
        let own = self.workers.iter().filter(|worker| worker.deployment.name == deployment);
        let own: Vec<_> = own.map(|worker| (worker, worker.writes())).collect();
        until(PATIENCE, || {
            let behind = own.iter().find(|(worker, before)| worker.writes() < before + 2);
            behind.map_or(Ok(begin.elapsed()), |(worker, _)| {
                Err(format!("client {} of {deployment} does not write again", worker.id))
            })
        })
    }
}

/// Repeats an attempt until it succeeds, or returns its last error.
pub(crate) fn until<T>(
    patience: Duration,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(error) if begin.elapsed() >= patience => {
                return Err(format!("after {patience:?}: {error}"));
            }
            Err(_) => thread::sleep(POLL_INTERVAL),
            outcome => return outcome,
        }
    }
}
