//! Errors and warnings about connection strings, before anything connects.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod guards;
mod warnings;

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use sdam_core::address::ServerAddress;
use sdam_spec::engine::{
    canned::{Answer, CannedTransport},
    clock::ManualClock,
};
use sdam_transport::{
    runtime::Io,
    spawn::{Spawner, Task},
};

/// The only server, which refuses every connection.
#[derive(Debug)]
struct Refusing(CannedTransport);

impl Refusing {
    fn address() -> ServerAddress {
        ServerAddress::new("a", 27017)
    }

    fn new() -> Self {
        let transport = CannedTransport::new(Arc::new(ManualClock::default()));
        transport.set(&Self::address(), Answer::Refuse("closed".into()));
        Self(transport)
    }

    fn io(&self) -> Io {
        Io::new(
            Arc::new(ManualClock::default()),
            Arc::new(self.0.clone()),
            1,
        )
    }

    /// Returns the number of attempted connections.
    fn attempts(&self) -> usize {
        self.0.checks(&Self::address()).len()
    }
}

/// Keeps tasks until they are polled.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<Task>>>);

impl Spawner for Kept {
    fn spawn(&self, task: Task) {
        self.0.lock().unwrap().push(task);
    }
}

impl Kept {
    /// Polls each task once.
    fn poll(&self) {
        let tasks = std::mem::take(&mut *self.0.lock().unwrap());
        for task in tasks {
            let _unfinished = task.now_or_never();
        }
    }
}
