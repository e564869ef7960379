//! Look-ups of a topology's SRV record (Polling SRV Records for mongos Discovery).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
};

use futures::future;
use sdam_core::deployment::{Input, Output, Timer};

use super::shared::Shared;
use crate::{engine::snapshot::Snapshot, srv::Lookup};

impl Shared {
    /// Looks up the SRV record if `output` requests it, and returns the outcome. Returns `None` for
    /// any other output.
    pub(crate) async fn look_up(&self, output: Option<Output>) -> Option<Input> {
        let Some(Output::LookUp { name, deadline }) = output else {
            return None;
        };
        let timeout = self.common.options.connect_timeout;
        let backend = &self.common.backend;
        let resolver = &**backend.resolver.as_ref()?;
        let lookup = Lookup { backend, resolver, timeout, deadline };
        Some(Input::LookedUp(lookup.srv(&name).await))
    }
}

/// The task that polls the SRV record. It is separate, so that look-ups delay no other task (N-27),
/// and is counted among the topology's tasks until it is dropped.
#[derive(Debug)]
pub(super) struct SrvTask(Arc<Shared>);

impl SrvTask {
    /// Creates the task, if the topology polls a record.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Self> {
        shared.deadline(Timer::Srv)?;
        shared.task_begins();
        Some(Self(Arc::clone(shared)))
    }

    /// Polls until the topology is closed, or has a type for which the record is never polled
    /// again.
    pub(super) async fn run(self) {
        let other = |snapshot: &Snapshot| {
            let polls = snapshot.description.topology_type().polls_srv();
            (!polls).then_some(())
        };
        let end = pin!(self.0.wait_for(other, None));
        future::select(end, pin!(self.poll())).await;
    }

    async fn poll(&self) {
        while let Some(next) = self.0.deadline(Timer::Srv) {
            self.0.common.backend.clock.sleep_until(next).await;
            let (timer, wanted) = (Timer::Srv, false);
            let output = self.0.ask(Input::Due { timer, wanted });
            if let Some(input) = self.0.look_up(output).await {
                // New hosts are applied even if a pool panics because of them, and the panic hook
                // has reported the panic.
                let _ = catch_unwind(AssertUnwindSafe(|| self.0.handle(input)));
            }
        }
    }
}

impl Drop for SrvTask {
    fn drop(&mut self) {
        self.0.task_ended();
    }
}
