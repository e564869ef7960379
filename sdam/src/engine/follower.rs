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
    view::{Verdict, View},
};

use super::{
    AfterUnlock, Engine, Feed, Machine, failed_check, server::Server, snapshot::Published,
};

/// The outputs of one call of a shared deployment, which its handles follow.
#[derive(Debug)]
pub(crate) struct Batch {
    now: Instant,
    outputs: Outputs,
    /// The deployment's servers after the call.
    servers: Arc<[Arc<Server>]>,
}

/// The view of a new handle, with its first outputs.
pub(crate) struct Opening {
    view: View,
    outputs: Outputs,
    servers: Arc<[Arc<Server>]>,
}

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
        mine.then(|| Self { now, outputs: outputs.clone(), servers: Arc::default() })
    }

    pub(super) fn with_servers(self, servers: Arc<[Arc<Server>]>) -> Self {
        Self { servers, ..self }
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

    /// Prepares the view of a new handle with these options on the deployment, which has these
    /// servers.
    pub(crate) fn opening(
        &self,
        now: Instant,
        options: &Options,
        servers: Arc<[Arc<Server>]>,
    ) -> Option<Opening> {
        let (view, outputs) = View::open(now, self.deployment()?, options);
        Some(Opening { view, outputs, servers })
    }

    /// Opens the prepared view in the engine of the handle.
    pub(crate) fn open_view(
        &mut self,
        now: Instant,
        opening: Option<Opening>,
        published: &Published,
    ) -> AfterUnlock {
        let Some(Opening { view, outputs, servers }) = opening else {
            return AfterUnlock::default();
        };
        self.machine = Machine::View(view);
        self.feed = Feed::Follower(servers);
        self.run(now, outputs, published)
    }

    /// Follows one call of the shared deployment.
    pub(crate) fn follow(&mut self, batch: &Batch, published: &Published) -> AfterUnlock {
        let Machine::View(view) = &mut self.machine else {
            return AfterUnlock::default();
        };
        self.feed = Feed::Follower(Arc::clone(&batch.servers));
        let outputs = view.follow(&batch.outputs);
        let failed = failed_check(&outputs);
        let after = self.run(batch.now, outputs, published);
        if let Some(server) = failed {
            self.note_failure(batch.now, server);
        }
        after
    }

    /// Returns the ends of running heartbeats, for a handle that is closed now.
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

    /// Decides about an error reported by an operation or a pool of the handle. `pool` is the state
    /// of the pool in the deployment.
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
    /// deployment's.
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
            Feed::Follower(servers) => servers.iter().find(|server| server.id() == id),
            Feed::None | Feed::Source(_) => None,
        }
    }

    /// Gives a handle without pools a server state of its own, because its generation is going to
    /// differ from the deployment's.
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
