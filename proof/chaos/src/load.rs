//! Applications that use the client during faults and report errors. The suitability of the servers
//! that they select is checked independently.

pub(crate) mod balanced;
mod operate;
pub(crate) mod report;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{
    future::{Either, FutureExt, select},
    stream::StreamExt,
};
use sdam::SelectionError;
use sdam_core::{
    read_preference::{ReadMode, ReadPreference, TagSet},
    rng::Rng,
    server::ServerType,
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::criteria::Criteria;
use sdam_sim::oracle::Oracle;
use sdam_transport::{clock::Clock, runtime::Runtime, spawn::Task};

use crate::{
    plan::{Plan, pick},
    record::{RunRecord, SelectedServer, Topology, Waiting, lock},
};

/// The maximum number of timers that a load task waits for at the same time.
pub(crate) const TASK_TIMERS: usize = 3;

/// An application: the state of one load task, which uses the client.
struct Application {
    topology: Topology,
    record: Arc<RunRecord>,
    clock: Arc<dyn Clock>,
    rng: Rng,
    /// The number of commands that have been run.
    commands: usize,
    /// The time after which tasks start no new operations.
    until: Instant,
}

/// Starts tasks that use `topology` until `until`.
pub(crate) fn start(
    plan: &Plan,
    topology: &Topology,
    record: &Arc<RunRecord>,
    runtime: &Runtime,
    until: Instant,
    mut rng: Rng,
) {
    let application = |rng: &mut Rng| Application {
        topology: topology.clone(),
        record: Arc::clone(record),
        clock: Arc::clone(&runtime.backend.clock),
        rng: rng.fork(),
        commands: 0,
        until,
    };
    for _ in 0..rng.below(4) {
        spawn(record, runtime, application(&mut rng).select());
    }
    if rng.below(2) == 0 {
        spawn(record, runtime, application(&mut rng).report());
    }
    if rng.below(2) == 0 {
        spawn(record, runtime, application(&mut rng).watch());
    }
    if let Some(options) = &plan.pool {
        let limit = operate::limit(options, topology.options(), plan.lateness());
        for _ in 0..rng.below(6) {
            spawn(record, runtime, application(&mut rng).operate(limit));
        }
        if plan.has_crowds() {
            spawn(record, runtime, application(&mut rng).gather(runtime.clone()));
        }
    }
}

/// Starts a task that checks out an idle connection, if there is one, and holds it for `time`.
pub(crate) fn hold_connection(record: &Arc<RunRecord>, runtime: &Runtime, time: Duration) {
    let pools = lock(&record.connecting).clone();
    let mut idle = pools.iter().filter(|pool| pool.stats().idle > 0);
    if let Some(Ok(connection)) = idle.next().and_then(|pool| pool.check_out().now_or_never()) {
        let end = runtime.backend.clock.sleep_until(runtime.backend.clock.now() + time);
        spawn(record, runtime, async move {
            end.await;
            drop(connection);
        });
    }
}

fn spawn(
    record: &Arc<RunRecord>,
    runtime: &Runtime,
    work: impl Future<Output = ()> + Send + 'static,
) {
    record.load.fetch_add(1, Ordering::SeqCst);
    let record = Arc::clone(record);
    let task = async move {
        work.await;
        record.load.fetch_sub(1, Ordering::SeqCst);
    };
    runtime.spawner.spawn(Task::new("application", task));
}

impl Application {
    fn millis(&mut self, max: u64) -> Duration {
        Duration::from_millis(self.rng.below(max))
    }

    async fn pause(&mut self, max: u64) {
        let deadline = self.clock.now() + self.millis(max);
        self.clock.sleep_until(deadline).await;
    }

    /// Pauses for a random time whose maximum is picked from `pauses` (in milliseconds). Returns
    /// whether the load continues.
    async fn goes_on(&mut self, pauses: [u64; 3]) -> bool {
        let max = pick(&mut self.rng, &pauses);
        self.pause(max).await;
        self.clock.now() < self.until
    }

    /// Selects servers and uses them.
    async fn select(mut self) {
        while self.goes_on([100, 3000, 10_000]).await {
            let Some(selected) = self.one_selection(8000).await else {
                continue;
            };
            self.pause(50).await;
            if self.rng.below(4) == 0 {
                self.report_on(selected.id());
            }
            drop(selected);
        }
    }

    /// Selects a server with a random timeout of up to `max` milliseconds.
    async fn one_selection(&mut self, max: u64) -> Option<SelectedServer> {
        let request = SelectionRequest::draw(&mut self.rng);
        let timeout = self.millis(max).min(self.until.since(self.clock.now()));
        let is_cancelled = self.rng.below(8) == 0;
        let give_up = self.clock.now() + self.millis(4000);
        let selection = wait_for(&self.topology, &self.record, &*self.clock, &request, timeout);
        if !is_cancelled {
            return selection.await.ok();
        }
        match select(std::pin::pin!(selection), self.clock.sleep_until(give_up)).await {
            Either::Left((outcome, _)) => outcome.ok(),
            // The selection is dropped while it waits.
            Either::Right(_) => None,
        }
    }

    /// Reports errors and handshakes of random servers.
    async fn report(mut self) {
        while self.goes_on([200, 2000, 6000]).await {
            if self.rng.below(6) == 0 {
                self.topology.request_check();
                continue;
            }
            let description = Arc::clone(self.topology.snapshot().description());
            let servers = description.servers();
            if let Some(server) = servers.get(self.rng.below(servers.len() as u64) as usize) {
                self.report_on(server.id);
            }
        }
    }

    /// Checks every snapshot that the topology publishes.
    async fn watch(self) {
        let mut snapshots = self.topology.watch();
        let mut last = 0;
        loop {
            let over = self.clock.sleep_until(self.until);
            let Either::Left((Some(snapshot), _)) = select(snapshots.next(), over).await else {
                *lock(&self.record.watched) = None;
                return;
            };
            let version = snapshot.version();
            self.record.ensure(version > last, Oracle::Freshness, || {
                format!("snapshot version {version} was published after version {last}")
            });
            last = version;
            *lock(&self.record.watched) = Some(last);
        }
    }
}

/// An entry in the list of waiting selections, which is removed when this guard is dropped.
struct WaiterGuard<'l> {
    record: &'l RunRecord,
    number: u64,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        lock(&self.record.waiting).remove(&self.number);
    }
}

/// Selects a server, and checks the result and how long the selection took.
pub(crate) async fn wait_for(
    topology: &Topology,
    record: &RunRecord,
    clock: &dyn Clock,
    request: &SelectionRequest,
    timeout: Duration,
) -> Result<SelectedServer, SelectionError> {
    let deadline = clock.now() + timeout;
    let number = {
        let mut waiting = lock(&record.waiting);
        let number = waiting.last_key_value().map_or(0, |(last, _)| last + 1);
        let request = request.clone();
        waiting.insert(number, Waiting { request, deadline });
        number
    };
    let guard = WaiterGuard { record, number };
    let outcome = topology.select_within(&request.criteria, timeout).await;
    drop(guard);
    match &outcome {
        Ok(selected) => {
            lock(&record.counts).selected += 1;
            let is_suitable = request.is_suitable(selected.topology_type(), selected.server_type());
            record.ensure(is_suitable != Some(false), Oracle::Selection, || {
                format!("{selected:?} for {}", request.criteria)
            });
        }
        Err(SelectionError::Timeout(_)) => {
            lock(&record.counts).timed_out += 1;
            let now = clock.now();
            let due = {
                let stalls = lock(&record.stalls);
                stalls.fires(deadline)..=stalls.fires(deadline + record.lateness)
            };
            record.ensure(due.contains(&now), Oracle::Waiters, || {
                format!("a selection timed out at {now:?} instead of {due:?}")
            });
        }
        Err(SelectionError::Closed) => {
            record.ensure(topology.snapshot().is_closed(), Oracle::Waiters, || {
                "a selection failed because the topology is closed, but it is open".into()
            });
        }
        Err(error) if request.may_fail_with(error) => {}
        Err(error) => record.violated(Oracle::Selection, error.to_string()),
    }
    outcome
}

/// A selection by an application.
#[derive(Clone, Debug)]
pub(crate) struct SelectionRequest {
    pub(crate) criteria: Criteria,
    /// The criteria in terms of server types, or `None` if suitability depends on more than the
    /// type.
    by_type: Option<TypeCriteria>,
    /// True if the criteria are invalid for every replica set, regardless of the state of its
    /// servers.
    is_invalid: bool,
}

/// A selection whose result depends only on server types.
#[derive(Clone, Copy, Debug)]
enum TypeCriteria {
    Write,
    Read(ReadMode),
}

impl SelectionRequest {
    /// Draws a random selection.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mode = pick(rng, ReadMode::ALL);
        match rng.below(10) {
            0..4 => Self::write(),
            4..8 => Self::read(ReadPreference::new(mode), Some(TypeCriteria::Read(mode))),
            8 => Self::tagged(pick(rng, &["ny", "la"])),
            _ => {
                let is_invalid = rng.below(8) == 0;
                let seconds = if is_invalid { 10 } else { 90 };
                let limit = Duration::from_secs(seconds + rng.below(60));
                let preference = ReadPreference::new(ReadMode::Secondary).with_max_staleness(limit);
                Self { is_invalid, ..Self::read(preference, None) }
            }
        }
    }

    pub(crate) fn write() -> Self {
        let by_type = Some(TypeCriteria::Write);
        Self { criteria: Criteria::write(), by_type, is_invalid: false }
    }

    /// Creates a selection of a server with this `dc` tag.
    pub(crate) fn tagged(dc: &str) -> Self {
        let tags = TagSet::from_iter([("dc", dc)]);
        let preference = ReadPreference::new(ReadMode::Nearest).with_tag_sets(vec![tags]);
        Self::read(preference, None)
    }

    fn read(preference: ReadPreference, by_type: Option<TypeCriteria>) -> Self {
        // The preference is always valid. An invalid one would be replaced by a simpler selection.
        match Criteria::read(preference) {
            Ok(criteria) => Self { criteria, by_type, is_invalid: false },
            Err(_) => Self::write(),
        }
    }

    /// Returns whether the selection may fail with this error. Timeouts and the end of the topology
    /// are always possible and are not considered.
    pub(crate) fn may_fail_with(&self, error: &SelectionError) -> bool {
        match error {
            SelectionError::Incompatible { .. } => true,
            SelectionError::InvalidCriteria(_) => self.is_invalid,
            _ => false,
        }
    }

    /// Returns whether a server of this type is suitable, or `None` if this depends on more than
    /// the type.
    pub(crate) fn is_suitable(&self, topology: TopologyType, server: ServerType) -> Option<bool> {
        let by_type = self.by_type?;
        Some(match topology {
            TopologyType::Unknown => false,
            TopologyType::Single => server.is_available(),
            TopologyType::Sharded => server == ServerType::Mongos,
            TopologyType::LoadBalanced => server == ServerType::LoadBalancer,
            TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
                let primary = server == ServerType::RsPrimary;
                let secondary = server == ServerType::RsSecondary;
                match by_type {
                    TypeCriteria::Write | TypeCriteria::Read(ReadMode::Primary) => primary,
                    TypeCriteria::Read(ReadMode::Secondary) => secondary,
                    TypeCriteria::Read(_) => primary || secondary,
                }
            }
        })
    }

    /// Returns whether any server is suitable, or `None` if this depends on more than server types.
    pub(crate) fn has_suitable_server(&self, topology: &TopologyDescription) -> Option<bool> {
        self.by_type?;
        if !topology.is_compatible() {
            // Selections do not wait if a server is incompatible, because they fail immediately.
            return Some(true);
        }
        let kind = topology.topology_type();
        let is_suitable = |server: ServerType| self.is_suitable(kind, server) == Some(true);
        Some(topology.servers().iter().any(|server| is_suitable(server.server_type)))
    }
}
