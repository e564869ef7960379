//! The progress of a check, and its failures.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use futures::{channel::oneshot, executor::block_on};

use super::Outcome;
use sdam_transport::panic;

/// The rule that a check tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The name of the check.
    pub(super) check: &'static str,
    /// The trait whose contract contains the rule.
    pub(super) contract: &'static str,
    /// The wording of the rule, quoted from the contract.
    pub(super) words: &'static str,
}

/// One run of a check.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// The number of the step and its description.
    step: Arc<Mutex<(u32, &'static str)>>,
    /// True if no future of the check may be pending, so waiting has to block the thread.
    blocks: bool,
}

impl Run {
    /// Creates a run in which futures must not be pending.
    pub(super) fn blocking() -> Self {
        Self { blocks: true, ..Self::default() }
    }

    /// Starts a step that failure messages describe as `doing`.
    pub(super) fn step(&self, doing: &'static str) {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        *step = (step.0 + 1, doing);
    }

    fn current(&self) -> (u32, &'static str) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives a value from another thread. Returns `None` if the sender is dropped.
    ///
    /// Blocks the thread only in a [blocking](Self::blocking) run. In other runs, the thread may be
    /// needed to drive the runtime.
    pub(super) async fn wait<T>(&self, sent: oneshot::Receiver<T>) -> Option<T> {
        let sent = if self.blocks { block_on(sent) } else { sent.await };
        sent.ok()
    }

    /// Runs `work` on its own thread and returns the result.
    pub(super) async fn on_own_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let (done, outcome) = oneshot::channel();
        thread::spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            // The receiver is dropped if the check took too long.
            let _ = done.send(outcome.map_err(|payload| panicked(&*payload)));
        });
        let outcome = self.wait(outcome).await;
        outcome.unwrap_or_else(|| Err("a thread has panicked".into()))
    }
}

/// Collects the failures.
pub(super) struct Report {
    begun: Instant,
    step_timeout: Duration,
    time_with_failures: Duration,
    /// The number of checks that did not run because others had failed.
    skipped: usize,
    /// The failures, one message for each failed check.
    pub(super) failures: Vec<String>,
}

impl Report {
    /// Creates a report in which a step that takes longer than `step_timeout` counts as hanging,
    /// and in which no check begins after `time_with_failures` if another one has failed.
    pub(super) fn new(step_timeout: Duration, time_with_failures: Duration) -> Self {
        let begun = Instant::now();
        Self { begun, step_timeout, time_with_failures, skipped: 0, failures: Vec::new() }
    }

    /// Runs a check on its own thread, which is abandoned if a step takes too long. Does nothing if
    /// there is no time left because of failures.
    pub(super) fn run(
        &mut self,
        rule: Rule,
        place: &str,
        run: &Run,
        work: impl FnOnce() -> Outcome + Send + 'static,
    ) {
        if !self.failures.is_empty() && self.begun.elapsed() >= self.time_with_failures {
            self.skipped += 1;
            return;
        }
        let (done, outcome) = mpsc::channel();
        thread::spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            // The receiver is dropped if the check took too long.
            let _ = done.send(outcome.unwrap_or_else(|payload| Err(panicked(&*payload))));
        });
        let reason = loop {
            let before = run.current();
            match outcome.recv_timeout(self.step_timeout) {
                Ok(Ok(())) => return,
                Ok(Err(reason)) => break reason,
                Err(RecvTimeoutError::Timeout) if run.current() != before => {}
                Err(_) => break format!("hangs for {:?}", self.step_timeout),
            }
        };
        let Rule { check, contract, words } = rule;
        let step = match run.current() {
            (0, _) => String::new(),
            (_, doing) => format!(" when {doing}"),
        };
        self.failures.push(format!(
            "{check}{place}: {reason}{step}\n    broken rule of {contract}: {words}"
        ));
    }

    /// Panics if there are failures.
    pub(super) fn finish(mut self) {
        if self.skipped > 0 {
            self.failures.push(format!("{} more checks did not run", self.skipped));
        }
        let failures = self.failures.join("\n  ");
        assert!(failures.is_empty(), "contracts are broken:\n  {failures}");
    }
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    format!("panics: {}", panic::text(payload))
}
