//! Selection from a running topology: waiting, errors and cost.
//!
//! Servers send fixed replies through the transport interface, and time is virtual, so everything
//! happens at exact times.

mod errors;
mod faults;
mod waiting;

use futures::{
    executor::LocalPool,
    future::{Future, RemoteHandle},
    task::LocalSpawnExt,
};
use sdam::{
    ReadMode, ReadPreference, SelectionError,
    select::{Candidates, LimitSource},
};
use sdam_core::{
    event::SelectionFailure,
    options::{MIN_HEARTBEAT_FREQUENCY, ServerMonitoringMode},
    read_preference::TagSet,
};

use super::*;

/// The tasks, the clock and the servers of a test.
pub(crate) struct Harness {
    pool: LocalPool,
    /// Tasks that have not started.
    spawned: HeldTasks,
    pub(crate) clock: ManualClock,
    pub(crate) servers: Servers,
}

/// Returns the addresses of `number` servers.
pub(crate) fn hosts(number: u16) -> Vec<ServerAddress> {
    (0..number).map(|index| ServerAddress::new("db.lan", 20_000 + index)).collect()
}

impl Harness {
    /// Creates a harness in which every server is silent.
    pub(crate) fn new() -> Self {
        let clock = ManualClock::default();
        clock.advance_to(Instant::from_millis(1000));
        Self {
            pool: LocalPool::new(),
            spawned: HeldTasks::default(),
            servers: Servers::new(clock.clone(), Server::silent()),
            clock,
        }
    }

    /// Creates a harness with a replica set of `hosts`, the first of which is primary.
    pub(crate) fn with_replica_set(hosts: &[ServerAddress]) -> Self {
        let harness = Self::new();
        for host in hosts {
            let server = Server::member(hosts, Some(host) == hosts.first());
            harness.servers.set(host, server);
        }
        harness
    }

    /// Starts a topology with the seeds `hosts`, and lets it process the first replies of the
    /// servers.
    pub(crate) fn start<P: PoolHandle>(
        &mut self,
        hosts: &[ServerAddress],
        change: impl FnOnce(TopologyBuilder) -> TopologyBuilder<P>,
    ) -> Topology<P> {
        let topology = self.spawn(hosts, change);
        self.settle();
        topology
    }

    /// Starts a topology with the seeds `hosts`, but does not run its tasks.
    pub(crate) fn spawn<P: PoolHandle>(
        &mut self,
        hosts: &[ServerAddress],
        change: impl FnOnce(TopologyBuilder) -> TopologyBuilder<P>,
    ) -> Topology<P> {
        let mut options = Options::new(hosts.to_vec());
        options.server_monitoring_mode = ServerMonitoringMode::Poll;
        change(TopologyBuilder::new(options)).start(self.runtime()).unwrap()
    }

    pub(crate) fn runtime(&self) -> Runtime {
        let (clock, servers) = (self.clock.clone(), self.servers.clone());
        let backend = Backend::new(Arc::new(clock), Arc::new(servers), 1);
        Runtime::new(backend, Arc::new(self.spawned.clone()))
    }

    /// Drops all tasks, like a runtime that shuts down. Later tasks still run.
    pub(crate) fn drop_tasks(&mut self) {
        self.pool = LocalPool::new();
        drop(self.spawned.take());
    }

    /// Drops the first task that has not started.
    pub(crate) fn drop_first_new_task(&mut self) {
        let later = self.spawned.take().into_iter().skip(1);
        later.for_each(|task| self.spawned.spawn(task));
    }

    /// Runs tasks until all of them are pending.
    pub(crate) fn settle(&mut self) {
        loop {
            self.pool.run_until_stalled();
            let spawned = self.spawned.take();
            if spawned.is_empty() {
                return;
            }
            for task in spawned {
                self.pool.spawner().spawn_local(task).unwrap();
            }
        }
    }

    /// Advances the time by `time`, stopping at each timer.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.settle();
        let end = self.clock.now() + time;
        while let Some(next) = self.clock.next_deadline().filter(|next| *next <= end) {
            self.clock.advance_to(next);
            self.settle();
        }
        self.clock.advance_to(end);
        self.settle();
    }

    /// Starts a task, which is cancelled if the handle is dropped.
    pub(crate) fn begin<T: 'static>(
        &mut self,
        future: impl Future<Output = T> + 'static,
    ) -> RemoteHandle<T> {
        self.pool.spawner().spawn_local_with_handle(future).unwrap()
    }
}

/// Counts the allocations of `select` in 100 calls after the first one.
fn allocations(mut select: impl FnMut()) -> u64 {
    // Excludes allocations that a thread and its snapshot guards make only once.
    select();
    allocation_counter::measure(|| (0..100).for_each(|_| select())).count_total
}

fn check(name: &str, topology: &Topology, criteria: &Criteria) {
    let at_once = || drop(topology.try_select(criteria).unwrap().unwrap());
    assert_eq!(allocations(at_once), 0, "{name}: try_select");
    let waiting = || drop(topology.select(criteria).now_or_never().unwrap().unwrap());
    assert_eq!(allocations(waiting), 0, "{name}: select");
}

/// L-62: this test cannot observe locks, but it counts allocations.
#[test]
fn a_selection_that_does_not_wait_allocates_nothing() {
    let nearest = Criteria::read(ReadMode::Nearest).unwrap();
    let any: TagSet = [("dc", "ny")].into_iter().collect();
    let picky = ReadPreference::new(ReadMode::SecondaryPreferred)
        .with_tag_sets(vec![any, TagSet::default()])
        .with_max_staleness(Duration::from_secs(120));
    let picky = Criteria::read(picky).unwrap();
    for members in [1, 3, 50] {
        let hosts = hosts(members);
        let mut harness = Harness::with_replica_set(&hosts);
        let topology = harness.start(&hosts, |builder| builder);
        check("write", &topology, &Criteria::write());
        check("nearest", &topology, &nearest);
        check("picky", &topology, &picky);
    }
    let hosts = hosts(1000);
    let mut harness = Harness::new();
    for host in &hosts {
        harness.servers.set(host, Server::mongos());
    }
    let topology = harness.start(&hosts, |builder| builder);
    check("1000 mongos", &topology, &Criteria::write());
}

#[test]
fn criteria_of_writes_and_of_read_modes_are_made_and_cloned_without_allocation() {
    let of = |criteria: &dyn Fn() -> Criteria| allocations(|| drop(criteria().clone()));
    assert_eq!(of(&Criteria::write), 0);
    assert_eq!(of(&|| Criteria::primary().with_write_stage()), 0);
    let nearest = || ReadPreference::new(ReadMode::Nearest);
    assert_eq!(of(&|| Criteria::read(nearest()).unwrap()), 0);
    assert_eq!(of(&|| Criteria::read(ReadMode::Secondary).unwrap()), 0);
    let limited = || nearest().with_max_staleness(Duration::from_secs(120));
    assert_eq!(of(&|| Criteria::read(limited()).unwrap()), 100, "a control");
}
