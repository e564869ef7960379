//! Tests errors and warnings about connection strings, which are reported before anything connects.

mod guards;
mod warnings;

use std::sync::Arc;

use futures::FutureExt;
use sdam::{ServerAddress, runtime::Backend};
use sdam_testkit::{HeldTasks, ManualClock, Server, Servers};

/// The only server, which refuses every connection.
#[derive(Debug)]
struct Refusing(Servers);

impl Refusing {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self(Servers::new(clock, Server::refusing("closed")))
    }

    fn backend(&self) -> Backend {
        let clock = ManualClock::default();
        Backend::new(Arc::new(clock), Arc::new(self.0.clone()), 1)
    }

    /// Returns the number of attempted connections.
    fn attempts(&self) -> usize {
        self.0.answered(&ServerAddress::new("a", 27017)).len()
    }
}

/// Polls each task once.
fn poll(tasks: &HeldTasks) {
    for task in tasks.take() {
        let _unfinished = task.now_or_never();
    }
}
