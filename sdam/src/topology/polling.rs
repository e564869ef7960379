//! The polling of the SRV record of a topology (Polling SRV Records for mongos Discovery).

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc};

use futures::future::{self, FutureExt};
use sdam_core::{
    deployment::Input,
    srv::{SrvEffect, SrvMachine},
    time::Instant,
};
use sdam_transport::resolve::Resolver;

use super::shared::Shared;
use crate::{engine::snapshot::Snapshot, srv::Lookup};

/// The polling of an SRV record, in both modes.
#[derive(Debug)]
pub(crate) struct SrvPolling {
    machine: SrvMachine,
    resolver: Arc<dyn Resolver>,
}

impl SrvPolling {
    /// Creates the polling of a topology that has just opened. `None` without an SRV record, if the
    /// topology's type is not polled (N-20), or without a resolver, where a driver may poll by
    /// itself.
    pub(crate) fn new(shared: &Shared) -> Option<Self> {
        let srv = shared.options.srv.clone()?;
        let resolver = Arc::clone(shared.io.resolver.as_ref()?);
        let heartbeat = shared.config.heartbeat_frequency;
        let polls = shared.options.topology_type().polls_srv();
        polls.then(|| Self {
            machine: SrvMachine::new(srv, heartbeat, shared.now()),
            resolver,
        })
    }

    /// Returns when the next look-up is due.
    pub(crate) fn next_rescan(&self) -> Instant {
        self.machine.next_rescan()
    }

    /// Looks up the record and applies its hosts. If the future is dropped before that, nothing has
    /// changed.
    pub(crate) async fn rescan(&mut self, shared: &Arc<Shared>) {
        let timeout = shared.options.connect_timeout;
        let lookup = Lookup::new(&shared.io, &self.resolver, timeout);
        let outcome = lookup.srv(self.machine.query_name()).await;
        let now = shared.now();
        for effect in self.machine.rescanned(now, outcome) {
            match effect {
                SrvEffect::Emit(event) => shared.events.push(now, event),
                SrvEffect::Hosts(hosts) => shared.handle(Input::Hosts(&hosts)),
            }
        }
    }
}

/// The task that polls the SRV record, apart from all others, so that look-ups delay nothing (N-27).
/// It counts as a task of the topology until it is dropped.
#[derive(Debug)]
pub(super) struct SrvTask {
    shared: Arc<Shared>,
    polling: SrvPolling,
}

impl SrvTask {
    /// Creates the task, if the topology polls a record.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Self> {
        let polling = SrvPolling::new(shared)?;
        shared.task_begins();
        let shared = Arc::clone(shared);
        Some(Self { shared, polling })
    }

    /// Polls until the topology is closed, or has a type that is not polled, which is for good.
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let other = |snapshot: &Snapshot| {
            let polls = snapshot.description.topology_type().polls_srv();
            (!polls).then_some(())
        };
        let end = pin!(shared.wait_for(other, None));
        future::select(end, pin!(self.poll())).await;
    }

    async fn poll(&mut self) {
        loop {
            let clock = &self.shared.io.clock;
            clock.sleep_until(self.polling.next_rescan()).await;
            // If a pool panics because of new hosts, they are applied nevertheless, and the panic
            // hook has reported it.
            let rescan = self.polling.rescan(&self.shared);
            let _ = AssertUnwindSafe(rescan).catch_unwind().await;
        }
    }
}

impl Drop for SrvTask {
    fn drop(&mut self) {
        self.shared.task_ended();
    }
}
