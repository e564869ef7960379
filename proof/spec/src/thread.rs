//! Threads in tests, implemented as tasks that run jobs sequentially.

use std::{sync::Arc, time::Duration};

use futures::{
    StreamExt,
    channel::{mpsc, oneshot},
    future::{BoxFuture, Either, select},
};
use sdam_transport::{clock::Clock, runtime::Runtime, spawn::Task};

/// A thread in a test. Its jobs may fail with `E`.
///
/// The thread runs on the runtime of the code under test. In the simulation, it is therefore
/// deterministic.
#[derive(Debug)]
pub(crate) struct Thread<E> {
    jobs: mpsc::UnboundedSender<BoxFuture<'static, Result<(), E>>>,
    end: oneshot::Receiver<Result<(), E>>,
}

impl<E: Send + 'static> Thread<E> {
    pub(crate) fn start(runtime: &Runtime) -> Self {
        let (jobs, mut queue) = mpsc::unbounded::<BoxFuture<'static, Result<(), E>>>();
        let (sender, end) = oneshot::channel();
        runtime.spawner.spawn(Task::new("test thread", async move {
            let mut outcome = Ok(());
            while let Some(job) = queue.next().await {
                let result = job.await;
                outcome = outcome.and(result);
            }
            // The receiver is dropped if the test has already failed for another reason.
            let _ = sender.send(outcome);
        }));
        Self { jobs, end }
    }

    /// Runs `job` on the thread after all earlier jobs.
    ///
    /// # Errors
    ///
    /// If the runtime dropped the thread.
    pub(crate) fn run(&self, job: BoxFuture<'static, Result<(), E>>) -> Result<(), String> {
        let sent = self.jobs.unbounded_send(job);
        sent.map_err(|_| "the thread has ended".to_owned())
    }

    /// Waits until the thread has run all jobs. Returns the first error from a job.
    ///
    /// # Errors
    ///
    /// If the thread does not end within `limit`, or was dropped.
    pub(crate) async fn join(
        self,
        clock: &Arc<dyn Clock>,
        limit: Duration,
    ) -> Result<Result<(), E>, String> {
        let Self { jobs, end } = self;
        drop(jobs);
        let deadline = clock.now() + limit;
        match select(end, clock.sleep_until(deadline)).await {
            Either::Left((outcome, _)) => outcome.map_err(|_| "the thread was dropped".to_owned()),
            Either::Right(_) => Err(format!("the thread has not ended within {limit:?}")),
        }
    }
}
