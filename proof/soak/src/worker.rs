//! One client that writes and reads, and is opened again and again if it is a short-lived one.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bson::{RawDocument, rawdoc};
use futures::future;
use sdam::client::{Client, Command};
use sdam::discovery::options::Detector;
use sdam::pool::Pool;
use sdam::{Error, ErrorKind, Runtime, ServerType, Stage};

use crate::delivered::Delivered;
use crate::deployment::{Deployment, MAX_POOL_SIZE};
use crate::gate::{Gate, Phase};
use crate::report::{Totals, add, get};

/// The time between two operations of a client.
const PERIOD: Duration = Duration::from_millis(500);

/// The number of pairs of operations of a short-lived client, and the time between two.
const LIFE: u32 = 3;
const SHORT_PERIOD: Duration = Duration::from_millis(200);

/// The maximum time that closing a client takes: its own limits, and the time of a busy machine.
const CLOSING: Duration = Duration::from_secs(15);

/// The state that all workers share.
pub(crate) struct Shared {
    pub(crate) gate: Gate,
    pub(crate) totals: Totals,
}

/// A task with one client at a time.
pub(crate) struct Worker {
    pub(crate) id: usize,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) runtime: Runtime,
    pub(crate) shared: Arc<Shared>,
    /// True if the worker opens and ends clients all the time.
    pub(crate) is_short_lived: bool,
    /// The number of writes that have succeeded.
    pub(crate) writes: AtomicU64,
    /// The client, unless it is short-lived.
    pub(crate) kept: Mutex<Option<(Client, Arc<Delivered>)>>,
    /// The events of clients that were dropped instead of closed.
    pub(crate) dropped: Mutex<Vec<Arc<Delivered>>>,
}

impl Worker {
    /// Works until the end, and closes its client.
    pub(crate) async fn run(self: Arc<Self>) {
        while !self.shared.gate.is(Phase::End) {
            if let Some(_pass) = self.shared.gate.pass() {
                if self.is_short_lived { self.live().await } else { self.work().await }
            }
            self.sleep(PERIOD).await;
        }
        let kept = lock(&self.kept).take();
        if let Some((client, delivered)) = kept {
            self.close(client, &delivered).await;
        }
    }

    /// Opens a client, uses it, and closes it or, with one client in three, drops it.
    pub(crate) async fn live(&self) {
        let Some((client, delivered)) = self.open().await else { return };
        for _ in 0..LIFE {
            // A client that was opened during a fault of DNS may never work.
            if !self.operate(&client).await {
                break;
            }
            self.sleep(SHORT_PERIOD).await;
        }
        if get(&self.shared.totals.opened).is_multiple_of(3) {
            lock(&self.dropped).push(delivered);
        } else {
            self.close(client, &delivered).await;
        }
    }

    async fn work(&self) {
        let kept = lock(&self.kept).as_ref().map(|(client, _)| client.clone());
        if let Some(client) = kept {
            self.operate(&client).await;
        } else {
            let opened = self.open().await;
            *lock(&self.kept) = opened;
        }
    }

    async fn open(&self) -> Option<(Client, Arc<Delivered>)> {
        let begin = Instant::now();
        let delivered = Arc::<Delivered>::default();
        let (sink, table) = (delivered.sink(), self.deployment.table());
        let started = Client::resolve(&self.deployment.uri(), &self.runtime.backend)
            .await
            .and_then(|builder| {
                let detector = self.id.is_multiple_of(3).then_some(Detector::PROBING);
                let builder = builder.topology(|topology| {
                    let topology = topology.sink(sink).translate(table);
                    topology.options(|options| options.detector = detector)
                });
                Ok(builder.start(self.runtime.clone())?)
            });
        match started {
            Ok(client) => {
                add(&self.shared.totals.opened, 1);
                Some((client, delivered))
            }
            Err(error) => {
                self.failed(begin, &error);
                None
            }
        }
    }

    /// Writes and reads at the same time. Returns whether the write has succeeded.
    async fn operate(&self, client: &Client) -> bool {
        let begin = Instant::now();
        let id = i32::try_from(self.id).unwrap_or_default();
        let update = rawdoc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } }, "upsert": true };
        let update = rawdoc! { "update": "c", "updates": [update] };
        let find = rawdoc! { "find": "c", "filter": { "_id": id } };
        let write = Command::write("soak", update.as_bytes());
        let read = Command::read("soak", find.as_bytes());
        let (write, read) = future::join(client.run(&write), client.run(&read)).await;
        let write = write.and_then(|reply| write_error(reply.body()).map_or(Ok(()), Err));
        let is_written = write.is_ok();
        add(&self.writes, is_written.into());
        for stats in pools(client).iter().map(Pool::stats) {
            if stats.idle + stats.in_use + stats.pending > MAX_POOL_SIZE {
                self.found(&format!("a pool is too large: {stats:?}"));
            }
        }
        for outcome in [write, read.map(drop)] {
            add(&self.shared.totals.operations, 1);
            if let Err(error) = outcome {
                self.failed(begin, &error);
            }
        }
        is_written
    }

    /// Counts a failed operation, which a fault must excuse.
    fn failed(&self, begin: Instant, error: &Error) {
        if self.deployment.is_calm_since(begin) {
            let took = begin.elapsed();
            self.found(&format!("without a fault, after {took:.1?}: {error:#}"));
        } else {
            let kind = self.deployment.kind();
            self.shared.totals.excuse(format!("{kind}: {:?} at {}", error.kind(), error.stage()));
        }
    }

    async fn close(&self, client: Client, delivered: &Delivered) {
        let pools = pools(&client);
        let begin = Instant::now();
        client.close().await;
        let took = begin.elapsed();
        if took > CLOSING {
            self.found(&format!("closing the client took {took:.1?}"));
        }
        for pool in pools {
            let stats = pool.stats();
            if stats.idle + stats.in_use + stats.pending + stats.waiting > 0
                || stats.opened != stats.closed
            {
                self.found(&format!("a closed pool has {stats:?}"));
            }
        }
        if let Some(fault) = delivered.fault(&client) {
            self.found(&fault);
        }
        let dropped = client.topology().events().dropped();
        self.count(delivered, dropped);
    }

    /// Adds the events of a client that has ended.
    fn count(&self, delivered: &Delivered, dropped: u64) {
        let [published, delivered] = delivered.totals();
        add(&self.shared.totals.events[0], published + dropped);
        add(&self.shared.totals.events[1], delivered);
    }

    /// Returns the number of idle pooled connections.
    ///
    /// # Errors
    /// If something is under way, or a server is not known yet: what it is.
    pub(crate) fn idle_connections(&self) -> Result<usize, String> {
        lock(&self.dropped).retain(|delivered| {
            let has_ended = delivered.is_closed();
            if has_ended {
                self.count(delivered, 0);
            }
            !has_ended
        });
        if !lock(&self.dropped).is_empty() {
            return Err("a client that was dropped has not ended".to_owned());
        }
        let kept = lock(&self.kept);
        let Some((client, delivered)) = kept.as_ref() else {
            return if self.is_short_lived { Ok(0) } else { Err("no client".to_owned()) };
        };
        let topology = client.topology();
        let servers = topology.servers();
        let unknown =
            servers.iter().find(|server| server.description().server_type == ServerType::Unknown);
        if let Some(unknown) = unknown {
            return Err(format!("{} is not known", unknown.address()));
        }
        let (known, all) = (servers.len(), self.deployment.members().len());
        if known != all {
            return Err(format!("{known} of {all} servers are known"));
        }
        let mut idle = 0;
        for stats in pools(client).iter().map(Pool::stats) {
            let is_open = (stats.opened - stats.closed) as usize == stats.idle;
            if stats.in_use + stats.pending + stats.waiting > 0 || !is_open {
                return Err(format!("a pool has {stats:?}"));
            }
            idle += stats.idle;
        }
        match (topology.waiters(), delivered.fault(client)) {
            (0, None) => Ok(idle),
            (0, Some(fault)) => Err(fault),
            (waiters, _) => Err(format!("{waiters} selections are waiting")),
        }
    }

    /// Returns the number of writes that have succeeded.
    pub(crate) fn writes(&self) -> u64 {
        get(&self.writes)
    }

    pub(crate) fn found(&self, finding: &str) {
        let (id, deployment) = (self.id, &self.deployment.name);
        self.shared.totals.found(&format!("client {id} of {deployment}: {finding}"));
    }

    async fn sleep(&self, time: Duration) {
        let clock = &self.runtime.backend.clock;
        clock.sleep_until(clock.now() + time).await;
    }
}

fn lock<T>(own: &Mutex<T>) -> MutexGuard<'_, T> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pools(client: &Client) -> Vec<Pool> {
    let servers = client.topology().servers();
    servers.iter().filter_map(|server| server.pool().cloned()).collect()
}

/// Returns the error of the only write, if the reply has one.
fn write_error(reply: &[u8]) -> Option<Error> {
    let reply = RawDocument::from_bytes(reply).ok()?;
    let error = reply.get("writeErrors").ok()??;
    Some(Error::new(ErrorKind::Command, Stage::Operation, format!("{error:?}")))
}
