//! A single-threaded harness in virtual time, which only the test advances.

use std::{sync::Arc, time::Duration};

use futures::{
    executor::LocalPool,
    future::{Future, RemoteHandle},
    task::LocalSpawnExt,
};
use sdam::{
    Clock, Options, PoolHandle, Runtime, ServerAddress, Spawner, Topology, TopologyBuilder,
    runtime::{Backend, Instant},
};
use sdam_core::options::ServerMonitoringMode;
use sdam_testkit::{HeldTasks, ManualClock, Server, Servers};

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
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let backend = Backend::new(clock, Arc::new(self.servers.clone()), 1);
        let runtime = Runtime::new(backend, Arc::new(self.spawned.clone()));
        change(TopologyBuilder::new(options)).start(runtime).unwrap()
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
