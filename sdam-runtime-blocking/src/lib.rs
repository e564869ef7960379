//! Blocking sockets for sdam's single-threaded mode.
//!
//! The futures of this crate are never pending: they block the thread that polls them, by the
//! deadline they are given at most, and are then ready.
//! So any executor will do, and no runtime is needed.
//! There is no spawner, because a task that blocks would keep its executor from everything else:
//! [`io`] yields an [`Io`], which does for single-threaded mode and nothing more.
//!
//! Looking up a host name takes as long as the system's resolver does, and connecting to a Unix
//! domain socket as long as its queue is full: neither has a time-out.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod dial;
mod socket;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sdam_transport::{
    net::NetTransport,
    runtime::Io,
    system::{self, Epoch},
};

use self::{clock::BlockingClock, dial::BlockingDial};

/// The sockets and the clock of the system.
///
/// The seed comes from the system's entropy.
pub fn io() -> Io {
    let epoch = Epoch::begin();
    let clock = Arc::new(BlockingClock::new(epoch));
    let transport = NetTransport::new(BlockingDial::new(epoch), clock.clone());
    Io::new(clock, Arc::new(transport), system::entropy())
}
