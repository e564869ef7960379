//! Applications that run commands on pooled connections.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bson::RawDocument;
use futures::future::{Either, select};
use sdam_core::{
    document::DocumentWriter, error::ErrorKind, ids::ServerId, options::Options, pool::PoolOptions,
    reply,
};
use sdam_pool::{Pin, Pool, PooledConnection};
use sdam_sim::oracle::Oracle;
use sdam_transport::runtime::Runtime;

use super::{Application, spawn};
use crate::{
    plan::COMMANDS,
    record::{RunRecord, lock},
};

/// The number of applications in a crowd. A pool wakes at most 64 evicted check-outs at once.
const CROWD: usize = 80;

/// Returns the maximum duration of a check-out: the queue timeout, plus the time for one connection
/// attempt by this check-out and one by each check-out that may overtake it. Each of these timers
/// may be late.
pub(super) fn limit(pool: &PoolOptions, options: &Options, lateness: Duration) -> Duration {
    let queue = pool.wait_queue_timeout.unwrap_or_default() + lateness;
    let connect = options.connect_timeout.unwrap_or_default() + lateness;
    queue + (pool.max_connecting + 1) * connect
}

/// Counts a check-out as in progress until this value is dropped.
struct Counted<'r>(&'r RunRecord);

impl<'r> Counted<'r> {
    fn new(record: &'r RunRecord) -> Self {
        record.checking_out.fetch_add(1, Ordering::SeqCst);
        Self(record)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.checking_out.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Application {
    /// Selects servers, checks out connections and runs commands on them.
    pub(super) async fn operate(mut self, limit: Duration) {
        while self.goes_on([20, 500, 5000]).await {
            if self.rng.below(16) == 0 {
                self.try_any_pool(limit).await;
                continue;
            }
            let Some(selected) = self.one_selection(3000).await else {
                continue;
            };
            let Some(pool) = selected.pool().connecting.clone() else {
                return;
            };
            let server = selected.id();
            drop(selected);
            let Some(mut connection) = self.check_out(&pool, limit).await else {
                continue;
            };
            let current = match connection.service_id() {
                Some(service) => self.topology.reporter(server).generation(Some(service)),
                None => self.record.pool(server).map(|pool| pool.generation),
            };
            let is_current = current.is_none_or(|current| connection.generation() >= current);
            self.record.ensure(is_current, Oracle::Pools, || {
                format!("{connection:?} of an old generation was handed out")
            });
            let number = (server, connection.id().driver);
            let is_in_step = !lock(&self.record.out_of_step).contains(&number);
            self.record.ensure(is_in_step, Oracle::Replies, || {
                format!("{connection:?} is out of step, and was handed out")
            });
            match self.rng.below(8) {
                0 => connection.pin(Pin::Cursor),
                1 => connection.pin(Pin::Transaction),
                _ => {}
            }
            for _ in 0..self.rng.below(4) {
                self.run_command(server, &mut connection).await;
                self.pause(200).await;
            }
            match self.rng.below(16) {
                0 => {
                    lock(&self.record.out_of_step).insert(number);
                    connection.discard();
                }
                1 => {
                    connection.unpin();
                    drop(connection);
                }
                _ => drop(connection),
            }
            // The error is reported at the instant at which the connection is returned, so the pool
            // may be cleared just after it handed this connection to another check-out.
            if self.rng.below(8) == 0 {
                self.report_on(server);
            }
        }
    }

    /// Checks out a connection from any pool, even a paused or closed one, and returns it to the
    /// pool.
    async fn try_any_pool(&mut self, limit: Duration) {
        let pools = lock(&self.record.connecting).clone();
        if let Some(pool) = pools.get(self.rng.below(pools.len().max(1) as u64) as usize) {
            drop(self.check_out(pool, limit).await);
        }
    }

    /// Lets crowds check out a connection each from the same pool at the same time.
    pub(super) async fn gather(mut self, runtime: Runtime) {
        while self.goes_on([100, 1000, 5000]).await {
            let Some(selected) = self.one_selection(3000).await else {
                continue;
            };
            let Some(pool) = selected.pool().connecting.clone() else {
                return;
            };
            for _ in 0..CROWD {
                let (pool, record) = (pool.clone(), Arc::clone(&self.record));
                spawn(&self.record, &runtime, async move {
                    let _counted = Counted::new(&record);
                    // Whether there is a connection does not matter.
                    drop(pool.check_out().await);
                });
            }
        }
    }

    /// Checks out a connection, sometimes for an operation with a deadline. Sometimes gives up
    /// early.
    async fn check_out(&mut self, pool: &Pool, limit: Duration) -> Option<PooledConnection> {
        let began = self.clock.now();
        let deadline = (self.rng.below(4) == 0).then(|| began + self.millis(500));
        let latest = deadline.map_or(began + limit, |own| own + self.record.lateness);
        let give_up = match self.rng.below(4) {
            0 => self.millis(300),
            _ => Duration::MAX,
        };
        let give_up = began + give_up.min(limit + Duration::from_secs(1));
        let give_up = self.clock.sleep_until(give_up);
        let record = Arc::clone(&self.record);
        let _counted = Counted::new(&record);
        let checking_out = match deadline {
            Some(deadline) => Either::Left(pool.check_out_within(deadline)),
            None => Either::Right(pool.check_out()),
        };
        let mut checking_out = pin!(checking_out);
        let outcome = select(checking_out.as_mut(), give_up).await;
        let now = self.clock.now();
        let is_in_time = now <= latest + lock(&self.record.stalls).between(began, now);
        self.record.ensure(is_in_time, Oracle::Waiters, || {
            let took = now.since(began);
            format!("a check-out of {pool:?} had to end by {latest:?}, but took {took:?}")
        });
        match outcome {
            Either::Left((Ok(connection), _)) => Some(connection),
            Either::Left((Err(error), _)) => {
                lock(&self.record.counts).refused += 1;
                lock(&self.record.errors).error(&error);
                self.record.note(format!("no connection: {error}"));
                if error.kind() == ErrorKind::RuntimeShutDown {
                    self.record.violated(Oracle::Pools, error.to_string());
                }
                None
            }
            Either::Right(_) => None,
        }
    }

    /// Runs one of the commands, or drops it before the reply arrives.
    async fn run_command(&mut self, server: ServerId, connection: &mut PooledConnection) {
        let name = COMMANDS[self.commands % COMMANDS.len()];
        self.commands += 1;
        let mut command = DocumentWriter::new();
        command.int32(name, 1);
        command.text("$db", "admin");
        let command = command.finish();
        let timeout = self.millis(3000);
        let is_dropped = self.rng.below(8) == 0;
        let limit = 2 * timeout + self.record.lateness;
        let give_up = self.clock.now() + if is_dropped { self.millis(5) } else { limit };
        let give_up = self.clock.sleep_until(give_up);
        let running = connection.run_command(&command, Some(timeout));
        let outcome = match select(pin!(running), give_up).await {
            Either::Left((outcome, _)) => Some(outcome),
            Either::Right(_) => None,
        };
        match outcome {
            Some(Ok(reply)) => {
                lock(&self.record.counts).operations += 1;
                self.check_reply(name, server, connection, reply.body());
            }
            Some(Err(error)) => {
                self.record.note(format!("{name} failed: {error}"));
                lock(&self.record.errors).error(&error);
                if error.kind() == ErrorKind::Protocol {
                    lock(&self.record.counts).bad_replies += 1;
                    let number = (server, connection.id().driver);
                    lock(&self.record.out_of_step).insert(number);
                }
            }
            None if is_dropped => {}
            None => {
                let message = format!("a command on {connection:?} has outlived its time limit");
                self.record.violated(Oracle::Waiters, message);
            }
        }
    }

    /// Checks the reply to a successful command.
    fn check_reply(
        &self,
        name: &str,
        server: ServerId,
        connection: &PooledConnection,
        reply: &[u8],
    ) {
        let complaint = match RawDocument::from_bytes(reply) {
            Ok(_) if !reply::is_ok(reply) => "has a reply without `ok`",
            Ok(reply) if reply.get("version").ok().flatten().is_some() != (name == COMMANDS[1]) => {
                "has the reply to another command"
            }
            Ok(_) => {
                let number = (server, connection.id().driver);
                if !lock(&self.record.out_of_step).contains(&number) {
                    return;
                }
                "was run on a connection that is out of step"
            }
            Err(_) => "has a reply that is not BSON",
        };
        let message = format!("{name} on {connection:?} has succeeded, and {complaint}");
        self.record.violated(Oracle::Replies, message);
    }
}
