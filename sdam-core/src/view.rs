//! The view that one of several handles has of a deployment they share.

mod events;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, sync::Arc};

use smallvec::SmallVec;

use self::events::{emit_server_change, emit_topology_change};
use crate::{
    deployment::{Deployment, Output, Outputs},
    error::{ErrorKind, ErrorOutcome, Stage},
    event::EventKind,
    ids::{Generation, ServerId},
    machine::{Effect, closing},
    options::Options,
    pool::{PoolClear, PoolState},
    report::ErrorReport,
    server::ServerDescription,
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// One handle's view of a [`Deployment`] that is watched on behalf of several handles.
///
/// The view follows the deployment's outputs, and returns the outputs for the handle's own pools,
/// readers and sinks. It differs from the deployment only in errors that the handle itself causes:
/// if a server refuses the handle's hello or its user, the server becomes Unknown in this view and
/// its pool is cleared. This lasts until the server answers another hello from any handle. All
/// other errors are [passed on](Verdict::Shared) to the deployment, and so affect every view.
///
/// Each view has its own generations, because it also clears pools itself.
///
/// # Contract
///
/// - The caller passes the outputs of all calls of the deployment since [`open`](Self::open), in
///   order.
/// - The caller performs all outputs of a call in order, before those of the next call.
#[derive(Debug, Default)]
pub struct View {
    /// The deployment's description after the outputs that the view has followed so far.
    base: Arc<TopologyDescription>,
    /// The deployment's description, in which the servers that this view has lost are Unknown.
    description: Arc<TopologyDescription>,
    /// The servers whose pools this view has cleared itself.
    own: Box<[Own]>,
    /// The servers for which the view has not yet seen the start of a heartbeat. A heartbeat in
    /// progress may have started before the view was opened.
    unseen: Box<[ServerId]>,
    /// The servers that the view's events report as suspected, with the start times.
    suspected: Box<[(ServerId, Instant)]>,
    is_closed: bool,
}

/// The state of a server whose pool this view has cleared itself.
#[derive(Debug)]
struct Own {
    server: ServerId,
    /// The number of clears by this view, in addition to those by the deployment.
    clears: u64,
    /// The time of this view's last clear, if the pool has not become ready since.
    paused: Option<Instant>,
    /// The description of the server, if the view has lost it and the deployment has not.
    lost: Option<Arc<ServerDescription>>,
}

/// The decision about an error that an operation or a pool of a handle has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The error concerns only this view.
    Own(ErrorOutcome),
    /// The error concerns all views: pass the report to [`Deployment::handle_error`], with this
    /// generation.
    Shared(Generation),
}

impl View {
    /// Opens a view of a deployment in its current state, for a handle that has these options. The
    /// outputs look like those of a discovery in which each server has just answered for the first
    /// time.
    pub fn open(now: Instant, deployment: &Deployment, options: &Options) -> (Self, Outputs) {
        let base = Arc::clone(deployment.description());
        if !deployment.is_open() {
            let is_closed = deployment.is_closed();
            return (Self { is_closed, ..Self::default() }, Outputs::default());
        }
        let mut initial = TopologyDescription {
            topology_type: options.topology_type(),
            set_name: options.replica_set.clone(),
            ..TopologyDescription::default()
        };
        let mut out = Outputs::default();
        out.emit(EventKind::TopologyOpening);
        for server in base.servers() {
            let (server, address) = (server.id, server.address.clone());
            initial.servers.push(Arc::new(ServerDescription::unknown(server, address.clone())));
            out.push(Output::OpenServer { server, address, monitored: false });
        }
        for server in base.servers().iter().map(|server| server.id) {
            if deployment.pool_state(server).is_some_and(|pool| pool.is_ready) {
                out.push(Output::PoolReady { server });
            }
        }
        out.push(Output::Publish(Arc::clone(&base)));
        let initial = Arc::new(initial);
        let new = Arc::clone(&initial);
        out.emit(EventKind::TopologyDescriptionChanged { previous: Arc::default(), new });
        for server in base.servers() {
            let address = server.address.clone();
            out.emit(EventKind::ServerOpening { server: server.id, address });
        }
        for (previous, new) in initial.servers().iter().zip(base.servers()) {
            emit_server_change(previous, new, &mut out);
        }
        emit_topology_change(&initial, &base, &mut out);
        let description = Arc::clone(&base);
        let unseen = base.servers().iter().map(|server| server.id).collect();
        let mut view = Self { base, description, unseen, ..Self::default() };
        for event in deployment.suspicions(now) {
            view.emit(now, &event, &[], &mut out);
        }
        (view, out)
    }

    /// Follows the outputs that one call of the deployment produced at `now`.
    pub fn follow(&mut self, now: Instant, outputs: &Outputs) -> Outputs {
        let mut out = Outputs::default();
        if self.is_closed {
            return out;
        }
        // While a server is lost, the view itself emits the changes of that server and of the
        // topology.
        let lost: SmallVec<[ServerId; 2]> = self.lost().map(|own| own.server).collect();
        let before = (!lost.is_empty()).then(|| Arc::clone(&self.description));
        let mut unannounced = before.as_ref();
        for output in outputs {
            match output {
                Output::OpenServer { server, address, .. } => {
                    let (server, address) = (*server, address.clone());
                    out.push(Output::OpenServer { server, address, monitored: false });
                }
                Output::CloseServer { server } => {
                    self.forget(*server);
                    out.push(Output::CloseServer { server: *server });
                }
                Output::PoolReady { server } => {
                    self.with(*server, Own::recover);
                    out.push(Output::PoolReady { server: *server });
                }
                Output::PoolClear { server, clear } => {
                    let mut clear = clear.clone();
                    clear.generation = self.generation(*server, clear.generation);
                    clear.was_paused |= self.own(*server).is_some_and(|own| own.paused.is_some());
                    out.push(Output::PoolClear { server: *server, clear });
                }
                Output::Publish(base) => {
                    self.base = Arc::clone(base);
                    self.recover(&mut out);
                    self.install(&mut out);
                    for server in &lost {
                        self.emit_change_of(*server, before.as_deref(), &mut out);
                    }
                }
                Output::Emit(EventKind::ServerDescriptionChanged { new, .. })
                    if lost.contains(&new.id) => {}
                Output::Emit(EventKind::TopologyDescriptionChanged { .. })
                    if unannounced.is_some() =>
                {
                    if let Some(before) = unannounced.take() {
                        emit_topology_change(before, &self.description, &mut out);
                    }
                }
                Output::Emit(event) => self.emit(now, event, &lost, &mut out),
                Output::Connect { .. }
                | Output::Send { .. }
                | Output::Read { .. }
                | Output::Disconnect { .. }
                | Output::Wake { .. }
                | Output::LookUp { .. }
                | Output::Choose
                | Output::Probe { .. }
                | Output::Finish(_) => {}
            }
        }
        if let Some(before) = unannounced {
            emit_topology_change(before, &self.description, &mut out);
        }
        out
    }

    /// Decides whether an error on `server`, from an operation or a pool of this handle, concerns
    /// only this view. `pool` is the [state of the pool](Deployment::pool_state) in the deployment.
    pub fn handle_error(
        &mut self,
        now: Instant,
        server: ServerId,
        report: &ErrorReport,
        pool: Option<PoolState>,
    ) -> (Verdict, Outputs) {
        let ignored = |outcome| (Verdict::Own(outcome), Outputs::default());
        let current = self.description.server_by_id(server).filter(|_| !self.is_closed);
        let (Some(current), Some(pool)) = (current.map(Arc::clone), pool) else {
            return ignored(ErrorOutcome::UnknownServer);
        };
        let Some(theirs) = self.to_base(server, report.generation) else {
            return ignored(ErrorOutcome::Stale);
        };
        if !concerns_handle(report) {
            return (Verdict::Shared(theirs), Outputs::default());
        }
        if theirs < pool.generation || current.is_newer_than_error(report.error.topology_version())
        {
            return ignored(ErrorOutcome::Stale);
        }
        let cause = report.error.clone().without_context();
        let address = current.address.clone();
        let lost = Arc::new(ServerDescription::failed(server, address, cause.clone(), now));
        let (clears, was_paused) = self.lose(now, lost);
        let mut clear = PoolClear::new(pool.generation.after(clears), cause);
        clear.was_paused = was_paused || !pool.is_ready;
        let before = Arc::clone(&self.description);
        let mut out = Outputs::default();
        self.install(&mut out);
        self.emit_change_of(server, Some(&before), &mut out);
        emit_topology_change(&before, &self.description, &mut out);
        self.end_suspicion(now, &current, &mut out);
        out.push(Output::PoolClear { server, clear });
        (Verdict::Own(ErrorOutcome::Cleared), out)
    }

    /// Closes the view; the deployment continues for other handles. `interrupted` contains the
    /// events that end [heartbeats and suspicions](Deployment::interrupted) in progress.
    pub fn close(&mut self, interrupted: impl IntoIterator<Item = EventKind>) -> Outputs {
        let mut out = Outputs::default();
        if core::mem::replace(&mut self.is_closed, true) {
            return out;
        }
        for event in interrupted {
            self.emit(Instant::EPOCH, &event, &[], &mut out);
        }
        self.base = Arc::default();
        let previous = core::mem::take(&mut self.description);
        for effect in closing(&previous, &self.description) {
            match effect {
                Effect::Publish(description) => out.push(Output::Publish(description)),
                Effect::CloseServer { server } => out.push(Output::CloseServer { server }),
                Effect::Emit(event) => out.emit(event),
                _ => {}
            }
        }
        out
    }

    /// Returns the current description.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// Returns whether the view or the deployment was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Converts `generation` of the deployment into the corresponding generation of this view.
    pub fn generation(&self, server: ServerId, generation: Generation) -> Generation {
        generation.after(self.clears(server))
    }

    /// Converts `own`, a generation of this view, into the deployment's generation; `None` if `own`
    /// is lower than the number of the view's own clears, and therefore stale.
    pub fn to_base(&self, server: ServerId, own: Generation) -> Option<Generation> {
        own.as_u64().checked_sub(self.clears(server)).map(Generation::from_u64)
    }

    fn clears(&self, server: ServerId) -> u64 {
        self.own(server).map_or(0, |own| own.clears)
    }

    fn own(&self, server: ServerId) -> Option<&Own> {
        self.own.iter().find(|own| own.server == server)
    }

    fn with(&mut self, server: ServerId, act: impl FnOnce(&mut Own)) {
        if let Some(own) = self.own.iter_mut().find(|own| own.server == server) {
            act(own);
        }
    }

    fn lost(&self) -> impl Iterator<Item = &Own> {
        self.own.iter().filter(|own| own.lost.is_some())
    }

    fn forget(&mut self, server: ServerId) {
        let all = core::mem::take(&mut self.own).into_iter();
        self.own = all.filter(|own| own.server != server).collect();
    }

    /// Records that this view has lost the server `lost` and clears its pool. Returns the number of
    /// clears of that pool by this view, and whether an earlier one had already paused the pool.
    fn lose(&mut self, now: Instant, lost: Arc<ServerDescription>) -> (u64, bool) {
        let server = lost.id;
        let was_paused = self.own(server).is_some_and(|own| own.paused.is_some());
        let clears = self.clears(server) + 1;
        self.forget(server);
        let own = Own { server, clears, paused: Some(now), lost: Some(lost) };
        self.own = core::mem::take(&mut self.own).into_iter().chain([own]).collect();
        (clears, was_paused)
    }

    /// Forgets that this view has lost a server if the server has answered since, and marks the
    /// server's pool ready. Also forgets it if the deployment itself has lost the server.
    fn recover(&mut self, out: &mut Outputs) {
        let single = self.base.topology_type() == TopologyType::Single;
        for own in &mut self.own {
            let base = self.base.server_by_id(own.server);
            let Some(known) = base.filter(|base| base.server_type.is_available()) else {
                own.lost = None;
                continue;
            };
            if own.paused.is_some_and(|paused| known.last_update_time > Some(paused)) {
                own.lost = None;
                if single || known.server_type.is_data_bearing() {
                    own.recover();
                    out.push(Output::PoolReady { server: own.server });
                }
            }
        }
    }

    /// Publishes the deployment's description, in which the servers that this view has lost are
    /// Unknown.
    fn install(&mut self, out: &mut Outputs) {
        self.description = if self.lost().next().is_none() {
            Arc::clone(&self.base)
        } else {
            let mut next = TopologyDescription::clone(&self.base);
            for lost in self.own.iter().filter_map(|own| own.lost.as_ref()) {
                next.put(Arc::clone(lost));
            }
            if next.topology_type == TopologyType::ReplicaSetWithPrimary && next.primary().is_none()
            {
                next.topology_type = TopologyType::ReplicaSetNoPrimary;
            }
            next.refresh_session_timeout();
            Arc::new(next)
        };
        out.push(Output::Publish(Arc::clone(&self.description)));
    }

    /// Emits the change of one server since `before`, unless the server has left.
    fn emit_change_of(
        &self,
        server: ServerId,
        before: Option<&TopologyDescription>,
        out: &mut Outputs,
    ) {
        let previous = before.and_then(|before| before.server_by_id(server));
        if let (Some(previous), Some(new)) = (previous, self.description.server_by_id(server)) {
            emit_server_change(previous, new, out);
        }
    }
}

impl Own {
    fn recover(&mut self) {
        self.paused = None;
        self.lost = None;
    }
}

/// Returns whether the handle itself causes the error: the server is reachable, but refuses the
/// handle's hello or its user.
fn concerns_handle(report: &ErrorReport) -> bool {
    let error = &report.error;
    let refused = match error.stage() {
        Stage::Hello => error.kind() == ErrorKind::Command,
        Stage::Auth => !matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout),
        _ => false,
    };
    refused && error.state_change().is_none() && !error.is_overload()
}
