//! What a topology wants to happen.

use alloc::sync::Arc;

use smallvec::SmallVec;

use crate::{
    address::ServerAddress,
    event::EventKind,
    ids::{Generation, ServerId},
    pool::PoolClear,
    topology::TopologyDescription,
};

/// What has to happen now.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Make the server's pool; start its monitor once the other effects have run.
    OpenServer {
        /// The new incarnation.
        server: ServerId,
        /// Where it is.
        address: ServerAddress,
        /// Whether it is to be monitored; a load balancer is not.
        monitored: bool,
    },
    /// Let the server's pool open connections. Never repeated without a clear in between.
    PoolReady {
        /// The incarnation.
        server: ServerId,
    },
    /// Let readers see this description.
    Publish(Arc<TopologyDescription>),
    /// Append to the queue of events.
    Emit(EventKind),
    /// Clear the server's pool.
    PoolClear {
        /// The incarnation.
        server: ServerId,
        /// How and why.
        clear: PoolClear,
    },
    /// Close the server's pool and stop its monitor.
    CloseServer {
        /// The incarnation.
        server: ServerId,
    },
    /// Let the server's monitor see whether the server is known; until the first one it is not.
    ServerKnown {
        /// The incarnation.
        server: ServerId,
        /// Whether its type is known now.
        known: bool,
    },
    /// Forget the server's round-trip times: it was lost, or its check has failed again.
    ResetRtt {
        /// The incarnation.
        server: ServerId,
    },
    /// Close the connection of the server's monitor, and cancel its running check, if the
    /// connection began to be opened under an earlier generation.
    CancelCheck {
        /// The incarnation.
        server: ServerId,
        /// The generation from now on.
        generation: Generation,
    },
    /// Ask the server's monitor to check soon.
    RequestCheck {
        /// The incarnation.
        server: ServerId,
    },
}

/// Effects in the order in which they have to run: open, ready, publish, emit, known or not, clear,
/// close, then whatever else concerns monitors.
///
/// "Ready before publish" means that no reader sees a selectable server with a paused pool, and
/// "clear after publish, before anything else" that no reader of the new description gets a
/// connection of the old generation (SDAM: "Why synchronize clearing a server's pool with updating
/// the topology?").
/// The opening events of a load-balanced topology come before the "ready" of its one pool.
#[derive(Debug, Default, PartialEq)]
#[must_use = "effects carry commands to pools and monitors"]
pub struct Effects(SmallVec<[Effect; 8]>);

impl Effects {
    pub(super) fn one(effect: Effect) -> Self {
        let mut effects = Self::default();
        effects.push(effect);
        effects
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The effects, in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Effect> {
        self.0.iter()
    }
}

impl IntoIterator for Effects {
    type Item = Effect;
    type IntoIter = smallvec::IntoIter<[Effect; 8]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Effects {
    type Item = &'a Effect;
    type IntoIter = core::slice::Iter<'a, Effect>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
