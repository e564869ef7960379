//! Blocking sockets for sdam's single-threaded mode.
//!
//! The futures of this crate are never pending: a poll blocks its thread, at most until the
//! deadline.
//! Any executor works, and no runtime is needed.
//! There is no spawner, because a blocking task would prevent its executor from running other
//! tasks: [`backend`] returns a [`Backend`], which is sufficient for single-threaded mode only.
//!
//! Two operations have no timeout: a host name look-up lasts as long as the system's resolver
//! takes, and connecting to a Unix domain socket waits as long as the backlog is full.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod dial;
mod socket;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sdam_transport::{
    runtime::Backend,
    system::{self, Epoch},
};

use self::{clock::BlockingClock, dial::BlockingDial};

/// Returns the system's blocking sockets and clock.
///
/// The random seed comes from the system's entropy.
pub fn backend() -> Backend {
    let epoch = Epoch::begin();
    let clock = Arc::new(BlockingClock::new(epoch));
    Backend::of_sockets(BlockingDial::new(epoch), clock, system::entropy())
}
