//! A minimal host, which runs each task on a thread of its own.

use std::{sync::Arc, thread};

use sdam_transport::spawn::{Spawner, Task};

use crate::host::Host;

#[derive(Debug)]
pub(crate) struct Threads;

impl Spawner for Threads {
    fn spawn(&self, task: Task) {
        thread::spawn(|| futures::executor::block_on(task));
    }
}

pub(crate) fn host() -> Host {
    Host::new(Arc::new(Threads), |future| {
        futures::executor::block_on(future);
    })
}
