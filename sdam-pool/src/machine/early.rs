//! The socket that the worker opens early, before the pool is ready for the first time.

use std::time::Duration;

use sdam_core::time::Instant;

use super::{Machine, Pooled, State};

/// The time for which a socket is kept open if it is not used.
const UNUSED: Duration = Duration::from_secs(1);

/// The state of the early socket, which the worker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Early {
    #[default]
    None,
    /// The worker has to dial.
    Wanted,
    Dialing,
    /// The socket is open, and kept until this time.
    Open(Instant),
    /// The worker has to drop the socket.
    Unwanted,
}

impl Early {
    /// Marks the socket as unwanted, if there is one.
    pub(super) fn give_up(&mut self) {
        *self = match *self {
            Self::None | Self::Wanted => Self::None,
            Self::Dialing | Self::Open(_) | Self::Unwanted => Self::Unwanted,
        };
    }

    /// Returns the time at which the socket must be dropped.
    pub(super) fn expiry(self) -> Option<Instant> {
        match self {
            Self::Open(until) => Some(until),
            Self::None | Self::Wanted | Self::Dialing | Self::Unwanted => None,
        }
    }

    /// Returns the task of the worker at `now`, if any: true to dial, false to drop the socket.
    pub(super) fn work(&mut self, now: Instant) -> Option<bool> {
        let (next, dials) = match *self {
            Self::Wanted => (Self::Dialing, true),
            Self::Unwanted => (Self::None, false),
            Self::Open(until) if until <= now => (Self::None, false),
            Self::None | Self::Dialing | Self::Open(_) => return None,
        };
        *self = next;
        Some(dials)
    }
}

impl<C: Pooled> Machine<C> {
    /// Makes the worker open a socket, if the pool was never ready. Does nothing behind a load
    /// balancer, where selections do not wait for checks.
    pub(crate) fn prepare(&mut self) {
        let is_new = matches!(self.state, State::Paused(None)) && self.early == Early::None;
        if is_new && !self.config.by_caller && !self.config.load_balanced {
            self.early = Early::Wanted;
            self.wake_worker();
        }
    }

    /// Keeps the socket that was opened, or forgets it if it could not be opened.
    pub(crate) fn dialed_early(&mut self, is_open: bool, now: Instant) {
        if self.early == Early::Dialing {
            self.early = if is_open { Early::Open(now + UNUSED) } else { Early::None };
        }
    }
}
