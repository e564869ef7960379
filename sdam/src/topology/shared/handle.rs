//! Handles on a deployment that another topology watches for them.

use std::sync::Arc;

use sdam_core::{
    ids::{Generation, ServerId},
    options::ConfigError,
};
use sdam_transport::{handshake::DriverInfo, spawn::Task};

use super::{Background, Shared};
use crate::{
    engine::{follower::Batch, panic::DeferredPanic, pools::CreatePool},
    topology::sharing::Sharing,
};

/// Methods of handles on a shared deployment.
impl Shared {
    /// Waits until the monitors have ended, if this was the last handle on a deployment.
    pub(in crate::topology) async fn monitors_finished(&self) {
        if let Sharing::Handle(base) = &self.sharing
            && let Sharing::Watched(followers) = &base.sharing
            && followers.is_closed()
            && let Background::Tasks(tasks) = &base.background
        {
            tasks.monitors.finished().await;
        }
    }

    /// Takes the batches that handles have to follow.
    pub(in crate::topology) fn take_batches(&self) -> Vec<Batch> {
        self.engine.lock().take_batches()
    }

    /// Opens the view of a new handle. Returns the tasks of its pools, and the batches that older
    /// handles have not followed yet. The new view already includes those batches, so only the
    /// older handles have to follow them.
    pub(in crate::topology) fn open_view(self: &Arc<Self>, base: &Self) -> (Vec<Task>, Vec<Batch>) {
        let now = self.now();
        let (opening, batches) = {
            let mut engine = base.engine.lock();
            let snapshot = base.published.load_full();
            (engine.opening(now, &self.common.options, snapshot), engine.take_batches())
        };
        let mut engine = self.engine.lock();
        let after = engine.open_view(now, opening, &self.published);
        (self.count(after.tasks), batches)
    }

    /// Makes this handle follow the outputs that one call to the deployment has produced. Returns
    /// the tasks of new pools; the caller spawns them, and wakes the readers.
    pub(in crate::topology) fn follow(self: &Arc<Self>, batch: &Batch) -> Vec<Task> {
        let mut engine = self.engine.lock();
        let after = engine.follow(batch, &self.published);
        self.count(after.tasks)
    }

    /// Closes the view of this handle, after following the batches that handles have not followed
    /// yet. Returns the tasks of pools created meanwhile, a pool's panic, and the batches, which
    /// the other handles still have to follow.
    pub(in crate::topology) fn close_view(
        self: &Arc<Self>,
        base: &Self,
    ) -> (Vec<Task>, DeferredPanic, Vec<Batch>) {
        let now = self.now();
        let (interrupted, batches) = {
            let mut engine = base.engine.lock();
            (engine.interrupted(now), engine.take_batches())
        };
        let mut engine = self.engine.lock();
        let followed = batches.iter().flat_map(|batch| engine.follow(batch, &self.published).tasks);
        let tasks = self.count(followed.collect());
        (tasks, engine.close_view(now, interrupted, &self.published).panic, batches)
    }

    /// Returns the factory of the pools.
    pub(in crate::topology) fn pools(&self) -> Arc<dyn CreatePool> {
        self.engine.lock().pools()
    }

    /// Returns the generation of the deployment's pools that corresponds to `own`; `None` if `own`
    /// is stale.
    pub(super) fn to_base(&self, server: ServerId, own: Generation) -> Option<Generation> {
        let engine = self.engine.lock();
        engine.view().and_then(|view| view.to_base(server, own))
    }

    /// Appends a library to the metadata of this handle's connections.
    pub(in crate::topology) fn append_metadata(
        &self,
        library: DriverInfo,
    ) -> Result<bool, ConfigError> {
        match self.sharing {
            Sharing::Handle(_) => self
                .metadata
                .get_or_init(|| Box::new(self.common.metadata.copied()))
                .append(library),
            Sharing::Alone | Sharing::Watched(_) => self.common.metadata.append(library),
        }
    }
}
