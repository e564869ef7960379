//! Adapters for runtimes whose futures stay on one thread.
//!
//! Clocks, transports and spawners can be used on any thread, and so can their futures. If the
//! sockets and tasks of a runtime cannot leave their thread, a [`Remote`] sends work to that
//! thread, which must drive [`Jobs::run`].

use std::{
    future::{Future, poll_fn},
    io,
    panic::AssertUnwindSafe,
    pin::pin,
    task::{Poll, ready},
};

use futures::{
    FutureExt as _, StreamExt as _,
    channel::{mpsc, oneshot},
    future::{self, Either, LocalBoxFuture},
    stream::FuturesUnordered,
};

use crate::{
    pipe::{self, PipeEnd, Piped},
    spawn::{Spawner, Task},
};

#[cfg(test)]
mod tests;

/// Sends work to the thread that runs the [`Jobs`], and spawns tasks on that thread.
#[derive(Clone)]
pub struct Remote {
    jobs: mpsc::UnboundedSender<Job>,
}

/// The work sent by a [`Remote`] and its clones.
pub struct Jobs {
    jobs: mpsc::UnboundedReceiver<Job>,
}

/// A function that creates a future on the thread that runs the [`Jobs`].
type Job = Box<dyn FnOnce() -> LocalBoxFuture<'static, ()> + Send>;

/// Returns a sender of work and its receiver.
pub fn remote() -> (Remote, Jobs) {
    let (sends, jobs) = mpsc::unbounded();
    (Remote { jobs: sends }, Jobs { jobs })
}

impl Remote {
    /// Sends `work` to the thread of the [`Jobs`]. That thread calls `work` and drives the returned
    /// future, which need not be `Send`. The call does not wait for the work to finish. If the
    /// [`Jobs`] are dropped, the work is dropped as well, possibly before the call returns.
    pub fn run<F: Future<Output = ()> + 'static>(&self, work: impl FnOnce() -> F + Send + 'static) {
        // If the `Jobs` have been dropped, sending fails and drops the work, as the contract
        // demands.
        let _ = self.jobs.unbounded_send(Box::new(|| work().boxed_local()));
    }

    /// Opens a socket with `connect` on the thread of the [`Jobs`], and then runs `carry` there.
    /// `carry` must transfer the socket's bytes until the returned stream is dropped; see
    /// [`PipeEnd`].
    ///
    /// # Errors
    ///
    /// The error returned by `connect`, or an error if the [`Jobs`] have been dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the attempt.
    pub async fn open<S: 'static, C, F>(
        &self,
        connect: impl FnOnce() -> C + Send + 'static,
        carry: impl FnOnce(S, PipeEnd) -> F + Send + 'static,
    ) -> io::Result<Piped>
    where
        C: Future<Output = io::Result<S>> + 'static,
        F: Future<Output = ()> + 'static,
    {
        let (mut opened, stream) = oneshot::channel();
        self.run(move || async move {
            let outcome = match future::select(pin!(connect()), opened.cancellation()).await {
                Either::Left((outcome, _)) => outcome,
                // The caller has dropped its future.
                Either::Right(_) => return,
            };
            let (piped, end) = pipe::piped();
            let (outcome, socket) = match outcome {
                Ok(socket) => (Ok(piped), Some(socket)),
                Err(error) => (Err(error), None),
            };
            if let (Ok(()), Some(socket)) = (opened.send(outcome), socket) {
                carry(socket, end).await;
            }
        });
        let ended = |_| io::Error::other("the runtime has shut down");
        stream.await.map_err(ended)?
    }
}

impl Spawner for Remote {
    fn spawn(&self, task: Task) {
        // If the task panics, only this task ends. The panic hook has already reported the panic.
        self.run(|| AssertUnwindSafe(task).catch_unwind().map(drop));
    }
}

impl Jobs {
    /// Runs the received work concurrently until all work has finished and the last [`Remote`] has
    /// been dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the runtime: all work is dropped, and so is work that is sent
    /// later.
    pub async fn run(mut self) {
        let mut running = FuturesUnordered::new();
        poll_fn(|cx| {
            let open = loop {
                match self.jobs.poll_next_unpin(cx) {
                    Poll::Ready(Some(job)) => running.push(job()),
                    Poll::Ready(None) => break false,
                    Poll::Pending => break true,
                }
            };
            while let Some(()) = ready!(running.poll_next_unpin(cx)) {}
            if open { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

sdam_core::opaque!(Remote, |this| ended: this.jobs.is_closed());

sdam_core::opaque!(Jobs);
