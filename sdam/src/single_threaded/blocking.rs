//! Single-threaded mode for programs without async code.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use sdam_core::{
    error::{Error, ErrorOutcome},
    ids::{ObjectId, ServerId},
    options::{ConfigError, Options, Warning},
    report::ErrorReport,
    topology::TopologyDescription,
};
use sdam_select::criteria::Criteria;
use sdam_transport::pool::{CommandReply, NoPools, PoolHandle};

use super::ScanTopology;
use crate::{
    runtime,
    select::{error::SelectionError, selected::SelectedServer},
    topology::TopologyBuilder,
};

/// A deployment on the system's sockets, whose servers are checked only when an operation needs a
/// server.
///
/// Every call blocks its thread until it is done; no work is done between calls. See
/// [`ScanTopology`](ScanTopology#how-long-a-selection-takes) for the duration of a selection.
///
/// This is a thin wrapper around a [`ScanTopology`], whose other methods are available through
/// [`inner`](Self::inner).
#[derive(Debug)]
pub struct BlockingTopology<P = NoPools> {
    scan: ScanTopology<P>,
}

impl<P: PoolHandle> TopologyBuilder<P> {
    /// Builds a topology for a program without async code. Performs no I/O itself.
    ///
    /// # Errors
    ///
    /// If the options contradict each other.
    pub fn blocking(self) -> Result<BlockingTopology<P>, ConfigError> {
        Ok(BlockingTopology { scan: self.scan(runtime::blocking())? })
    }
}

impl BlockingTopology {
    /// Creates a builder from a `mongodb` or `mongodb+srv` connection string, and looks up the
    /// records of a `mongodb+srv` string; see [`resolve`](crate::resolve). Finish the builder with
    /// [`blocking`](TopologyBuilder::blocking).
    ///
    /// # Errors
    ///
    /// As [`resolve`](crate::resolve).
    pub fn builder(uri: &str) -> Result<TopologyBuilder, Error> {
        wait(crate::resolve(uri, &runtime::blocking())).map(TopologyBuilder::new)
    }
}

impl<P: PoolHandle> BlockingTopology<P> {
    /// Returns the topology's id, which all its events carry.
    pub fn id(&self) -> ObjectId {
        self.scan.id()
    }

    /// Returns the options that the topology was started with.
    pub fn options(&self) -> &Options {
        self.scan.options()
    }

    /// Returns the configuration warnings, see [`ScanTopology::warnings`].
    pub fn warnings(&self) -> &[Warning] {
        self.scan.warnings()
    }

    /// Returns the current topology description.
    pub fn description(&self) -> Arc<TopologyDescription> {
        self.scan.description()
    }

    /// Selects a server. Scans first if a scan is due or an error requires one.
    ///
    /// # Errors
    ///
    /// As [`ScanTopology::select`].
    pub fn select(&mut self, criteria: &Criteria) -> Result<SelectedServer<P>, SelectionError> {
        wait(self.scan.select(criteria))
    }

    /// Selects a server like [`select`](Self::select), but with the given timeout if that is
    /// shorter than `serverSelectionTimeoutMS`. The timeout replaces the client's `timeoutMS`.
    ///
    /// # Errors
    ///
    /// As [`ScanTopology::select`].
    pub fn select_within(
        &mut self,
        criteria: &Criteria,
        timeout: Duration,
    ) -> Result<SelectedServer<P>, SelectionError> {
        wait(self.scan.select_within(criteria, timeout))
    }

    /// Checks all servers, see [`ScanTopology::scan`].
    pub fn scan(&mut self) {
        wait(self.scan.scan());
    }

    /// Checks one server, see [`ScanTopology::check`].
    pub fn check(&mut self, server: ServerId) {
        wait(self.scan.check(server));
    }

    /// Runs a command on the connection to `server`, see [`ScanTopology::run_command`]. Waits for
    /// the reply for at most `timeout` (the driver's `socketTimeoutMS`), or without limit if
    /// `timeout` is `None`.
    ///
    /// # Errors
    ///
    /// As [`ScanTopology::run_command`].
    pub fn run_command(
        &mut self,
        server: ServerId,
        command: &[u8],
        timeout: Option<Duration>,
    ) -> Result<CommandReply, Error> {
        let reply = wait(self.scan.run_command(server, command, timeout));
        wait(self.scan.settle());
        reply
    }

    /// Reports an error on `server`, see [`ScanTopology::handle_error`]. With
    /// `singleThreadedImmediateCheck`, a server that is no longer the primary is checked before the
    /// call returns.
    pub fn handle_error(&mut self, server: ServerId, error: &ErrorReport) -> ErrorOutcome {
        let outcome = self.scan.handle_error(server, error);
        wait(self.scan.settle());
        outcome
    }

    /// Closes all connections and publishes the last events. Dropping the topology does the same.
    pub fn close(&mut self) {
        self.scan.close();
    }

    /// Returns the wrapped topology.
    pub fn inner(&mut self) -> &mut ScanTopology<P> {
        &mut self.scan
    }
}

/// Blocks the thread until `future` is ready.
///
/// Futures on blocking sockets are ready at the first poll. On another transport, a future may have
/// to wait; the thread is then parked until it is woken.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// A waker that unparks the waiting thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn a_pending_future_is_polled_again_when_it_wakes_the_thread() {
        let mut polls = 0;
        let polled = wait(poll_fn(|cx| {
            polls += 1;
            if polls < 3 {
                let waker = cx.waker().clone();
                thread::spawn(move || waker.wake());
                return Poll::Pending;
            }
            Poll::Ready(polls)
        }));
        assert_eq!(polled, 3);
    }
}
