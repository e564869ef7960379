//! The engine of a handle on a shared deployment.

use std::sync::Arc;

use sdam_core::{
    address::ServerAddress,
    deployment::{Output, Outputs},
    error::ErrorOutcome,
    event::EventKind,
    ids::ServerId,
    options::Options,
    pool::PoolState,
    report::ErrorReport,
    time::Instant,
    topology::TopologyDescription,
    view::{Verdict, View},
};

use super::{
    AfterUnlock, Engine, Feed, Machine, failed_check,
    server::Server,
    snapshot::{Published, Snapshot},
};

/// The outputs of one call to a shared deployment, which its handles follow.
#[derive(Debug)]
pub(crate) struct Batch {
    now: Instant,
    outputs: Outputs,
    /// The deployment's snapshot after the call.
    snapshot: Option<Arc<Snapshot>>,
}

/// The view of a new handle, its first outputs, and the deployment's snapshot.
pub(crate) type Opening = (View, Outputs, Arc<Snapshot>);

impl Batch {
    /// Returns the part of `outputs` that concerns handles; `None` if there is none.
    pub(super) fn of(now: Instant, outputs: &Outputs) -> Option<Self> {
        let concerns_handles = |output: &Output| {
            matches!(
                output,
                Output::OpenServer { .. }
                    | Output::CloseServer { .. }
                    | Output::PoolReady { .. }
                    | Output::PoolClear { .. }
                    | Output::Publish(_)
                    | Output::Emit(_)
            )
        };
        let mine = outputs.iter().any(concerns_handles);
        mine.then(|| Self { now, outputs: outputs.clone(), snapshot: None })
    }

    pub(super) fn with_snapshot(self, snapshot: Arc<Snapshot>) -> Self {
        Self { snapshot: Some(snapshot), ..self }
    }
}

impl Engine {
    /// Takes the batches that handles have to follow.
    pub(crate) fn take_batches(&mut self) -> Vec<Batch> {
        match &mut self.feed {
            Feed::Source(batches) => std::mem::take(batches),
            Feed::None | Feed::Follower(_) => Vec::new(),
        }
    }

    /// Prepares the view of the deployment for a new handle with the given options. `snapshot` is
    /// the last snapshot that the deployment published.
    pub(crate) fn opening(
        &self,
        now: Instant,
        options: &Options,
        snapshot: Arc<Snapshot>,
    ) -> Option<Opening> {
        let (view, outputs) = View::open(now, self.deployment()?, options);
        Some((view, outputs, snapshot))
    }

    /// Opens the prepared view in the engine of the handle.
    pub(crate) fn open_view(
        &mut self,
        now: Instant,
        opening: Option<Opening>,
        published: &Published,
    ) -> AfterUnlock {
        let Some((view, outputs, snapshot)) = opening else {
            return AfterUnlock::default();
        };
        self.machine = Machine::View(view);
        self.feed = Feed::Follower(snapshot);
        self.run(now, outputs, published)
    }

    /// Makes this handle follow the outputs that one call to the shared deployment has produced.
    pub(crate) fn follow(&mut self, batch: &Batch, published: &Published) -> AfterUnlock {
        let Machine::View(view) = &mut self.machine else {
            return AfterUnlock::default();
        };
        if let Some(snapshot) = &batch.snapshot {
            self.feed = Feed::Follower(Arc::clone(snapshot));
        }
        let outputs = view.follow(batch.now, &batch.outputs);
        let failed = failed_check(&outputs);
        let after = self.run(batch.now, outputs, published);
        if let Some(server) = failed {
            self.note_failure(batch.now, server);
        }
        after
    }

    /// Returns the events that end the running heartbeats and suspicions, for a handle that is
    /// being closed.
    pub(crate) fn interrupted(&self, now: Instant) -> Vec<EventKind> {
        self.deployment().map(|own| own.interrupted(now)).unwrap_or_default()
    }

    /// Closes the view of the handle.
    pub(crate) fn close_view(
        &mut self,
        now: Instant,
        interrupted: Vec<EventKind>,
        published: &Published,
    ) -> AfterUnlock {
        let Machine::View(view) = &mut self.machine else {
            return AfterUnlock::default();
        };
        let outputs = view.close(interrupted);
        self.run(now, outputs, published)
    }

    /// Decides how to treat an error that an operation or a pool of the handle has reported. `pool`
    /// is the state of the deployment's pool.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        server: ServerId,
        (error, pool): (&ErrorReport, Option<PoolState>),
        published: &Published,
    ) -> (Verdict, AfterUnlock) {
        let Machine::View(view) = &mut self.machine else {
            return (Verdict::Own(ErrorOutcome::UnknownServer), AfterUnlock::default());
        };
        let (verdict, outputs) = view.handle_error(now, server, error, pool);
        if !outputs.is_empty() {
            self.separate(server);
        }
        (verdict, self.run(now, outputs, published))
    }

    /// Returns the view; `None` if the topology watches the deployment itself.
    pub(crate) fn view(&self) -> Option<&View> {
        match &self.machine {
            Machine::Deployment(_) => None,
            Machine::View(view) => Some(view),
        }
    }

    /// Creates the state of a new server. Returns `None` for a handle without pools, which uses the
    /// deployment's state.
    pub(super) fn new_server(&self, id: ServerId, address: ServerAddress) -> Option<Server> {
        match &self.feed {
            Feed::None | Feed::Source(_) => Some(Server::new(id, address)),
            Feed::Follower(_) if self.pools.is_none() => None,
            Feed::Follower(_) => Some(self.shared(id)?.following()),
        }
    }

    /// Returns the deployment's server, if this handle follows a deployment.
    pub(super) fn shared(&self, id: ServerId) -> Option<&Arc<Server>> {
        match &self.feed {
            Feed::Follower(theirs) => theirs.servers.iter().find(|server| server.id() == id),
            Feed::None | Feed::Source(_) => None,
        }
    }

    /// Returns the deployment's snapshot if this handle can publish it instead of creating one.
    /// This is possible if the handle has no state of its own for any server, and its description
    /// is the same as the deployment's.
    pub(super) fn snapshot_of(
        &self,
        description: &Arc<TopologyDescription>,
    ) -> Option<Arc<Snapshot>> {
        match &self.feed {
            Feed::Follower(theirs)
                if self.servers.is_empty()
                    && theirs.version > self.version
                    && Arc::ptr_eq(&theirs.description, description) =>
            {
                Some(Arc::clone(theirs))
            }
            _ => None,
        }
    }

    /// Gives a handle without pools its own state for a server, because that server's generation is
    /// about to differ from the deployment's.
    fn separate(&mut self, id: ServerId) {
        if !self.servers.contains_key(&id)
            && let Some(server) = self.shared(id).map(|server| Arc::new(server.following()))
        {
            let _ = self.pool(&server, &mut Vec::new());
            self.servers.insert(id, server);
            self.separated = true;
        }
    }
}
