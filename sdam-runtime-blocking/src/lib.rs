//! Blocking sockets for sdam's single-threaded mode.
//!
//! The futures of this crate are never pending, because each poll blocks its thread until the
//! operation is done or its deadline has passed. Any executor works, and no runtime is needed.
//! There is no spawner, because a blocking task would prevent its executor from running other
//! tasks. [`backend`] therefore returns a [`Backend`], which is sufficient for single-threaded mode
//! only.
//!
//! Two operations have no timeout: looking up a host name takes as long as the system's resolver
//! takes, and connecting to a Unix domain socket blocks while the server's backlog is full.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod dial;
mod socket;
#[cfg(test)]
mod tests;

use std::{sync::Arc, thread};

use sdam_transport::{
    clock::Clock,
    runtime::Backend,
    system::{self, Epoch, SystemClock},
};

use self::dial::BlockingDial;

/// Returns a backend that uses the system's blocking sockets and clock.
///
/// The random seed comes from the system's entropy.
pub fn backend() -> Backend {
    let epoch = Epoch::begin();
    Backend::of_sockets(BlockingDial { epoch }, clock(epoch), system::entropy())
}

/// Returns a clock whose timers block the thread.
fn clock(epoch: Epoch) -> Arc<dyn Clock> {
    let clock = SystemClock::new(epoch, |epoch, deadline| {
        Box::pin(async move {
            while epoch.now() < deadline {
                thread::sleep(epoch.until(deadline));
            }
        })
    });
    Arc::new(clock.blocking())
}
