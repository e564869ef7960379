//! Pausing and resuming monitoring.

use alloc::sync::Arc;

use super::{Effect, Effects, TopologyMachine, update::Consequences};
use crate::{
    error::{Error, ErrorKind, Stage},
    pool::PoolClear,
    server::ServerDescription,
    time::Instant,
};

impl TopologyMachine {
    /// Clears the pools that are ready. The description is published again, so that readers see
    /// that it is no longer kept up to date.
    pub(super) fn pause(&mut self) -> Effects {
        let mut effects = Effects::one(Effect::Publish(Arc::clone(&self.description)));
        for pool in self.pools.iter_mut().filter(|pool| pool.ready) {
            let cause = Error::new(ErrorKind::Cancelled, Stage::CheckOut, "the topology is paused");
            let server = pool.server;
            effects.push(Effect::PoolClear { server, clear: PoolClear::new(pool.clear(), cause) });
        }
        effects
    }

    /// Makes every server Unknown until it is checked.
    pub(super) fn resume(&mut self, now: Instant) -> Effects {
        let mut transition = self.transition(now);
        for server in &self.description.servers {
            let unknown = ServerDescription::unknown(server.id, server.address.clone());
            transition.run(&Arc::new(unknown));
        }
        let mut effects = self.commit(transition, None, Consequences::default());
        if !effects.iter().any(|effect| matches!(effect, Effect::Publish(_))) {
            effects.push(Effect::Publish(Arc::clone(&self.description)));
        }
        effects
    }
}
