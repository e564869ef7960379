//! The state of a pool, shared by its handles, its worker and its connections, and its events (CMAP:
//! "Connection Pool Monitoring").

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    task::Waker,
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind},
    event::{CheckOutFailure, ConnectionClosedReason, ConnectionId, EventKind, EventName},
    ids::ServerId,
    pool::{PoolClear, PoolOptions},
    rng::Rng,
    time::Instant,
};
use sdam_transport::{
    clock::Clock,
    connect::Connection,
    pool::{Established, PoolContext},
};

use crate::{
    connection::Member,
    core::{Closing, Core, Interrupts},
    machine::{AttemptFailure, Config, Machine, Pin, Urgent, Work},
};

/// A socket that is being opened early; `None` if it could not be opened.
pub(crate) type EarlySocket = BoxFuture<'static, Option<Box<dyn Connection>>>;

/// The state of a pool.
pub(crate) struct Inner {
    pub(crate) core: Core<Box<Member>>,
    pub(crate) context: PoolContext,
    pub(crate) events: PoolEvents,
    pub(crate) interrupts: Interrupts,
    pub(crate) by_caller: bool,
}

impl Inner {
    pub(crate) fn new(context: PoolContext) -> Arc<Self> {
        let by_caller = context.spawner.is_none();
        let config = Config {
            address: context.address.clone(),
            options: context.options.pool.clone(),
            load_balanced: context.options.load_balanced,
            by_caller,
        };
        let events = PoolEvents(context.clone());
        events.pool_created(&context.options.pool);
        Arc::new(Self {
            core: Core::new(Machine::new(config, context.generation)),
            context,
            events,
            interrupts: Interrupts::default(),
            by_caller,
        })
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.context.backend.clock
    }

    pub(crate) fn check_in(&self, member: Box<Member>, pin: Option<Pin>) {
        self.events.checked_in(member.id);
        // Without `maxIdleTimeMS`, the time of the last use is sufficient, so the clock is not
        // read.
        let limit = self.context.options.pool.max_idle_time;
        let now = limit.map_or(member.used, |_| self.clock().now());
        self.change(|machine| machine.check_in(member, pin, now));
    }

    /// Opens the connection with number `id`, over the early socket if there is one, and adds it to
    /// the pool. An early socket that is still being opened will be open sooner than a new socket.
    /// The attempt begins with the call and ends when the future ends or is dropped, even if the
    /// future was never polled. The future does not keep the pool alive.
    pub(crate) fn open(
        self: &Arc<Self>,
        id: u64,
        early: Option<EarlySocket>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let mut attempt =
            Opening { pool: Arc::downgrade(self), events: self.events.clone(), id, is_open: true };
        self.events.created(attempt.connection());
        let (context, timeout, started) =
            (self.context.clone(), self.context.options.connect_timeout, self.clock().now());
        async move {
            let (mut dialed, mut left) = (None, timeout);
            if let Some(early) = early {
                dialed = early.await;
                let elapsed = context.backend.clock.now().since(started);
                left = timeout.map(|timeout| timeout.saturating_sub(elapsed));
            }
            let result = context.establish_over(dialed, left).await;
            match (result, attempt.pool.upgrade()) {
                (Ok(established), Some(pool)) => {
                    attempt.end();
                    pool.add(id, established, started);
                }
                (Ok(established), None) => established.close(),
                (Err(error), pool) => {
                    attempt.end();
                    let (own, reason) = (attempt.connection(), ConnectionClosedReason::Error);
                    attempt.events.closed(own, reason, Some(&error));
                    if let Some(pool) = pool {
                        pool.fail(id, AttemptFailure::Failed(error));
                    }
                }
            }
        }
    }

    /// Opens a socket before the pool is ready. Errors are ignored, because the monitor or the next
    /// attempt to open a connection will report its own error.
    pub(crate) fn dial_early(&self) -> EarlySocket {
        let (context, timeout) = (self.context.clone(), self.context.options.connect_timeout);
        async move { context.dial(timeout).await.ok() }.boxed()
    }

    fn add(&self, id: u64, established: Established, started: Instant) {
        let now = self.clock().now();
        let member = Box::new(Member::new(id, established, now));
        self.interrupts.add(&member.interrupt);
        self.events.ready(member.id, started);
        self.change(|machine| machine.established(id, member, now));
    }

    /// Ends the attempt with number `id`, which has established no connection.
    pub(crate) fn fail(&self, id: u64, failure: AttemptFailure) {
        let now = self.clock().now();
        self.change(|machine| machine.failed(id, failure, now));
    }

    /// Changes the machine, and closes the connections that the machine gives up.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Machine<Box<Member>>) -> T) -> T {
        let (answer, closing) = self.core.change(change);
        self.close_all(closing);
        answer
    }

    /// Closes the connections that the machine has removed.
    pub(crate) fn close_all(&self, closing: Closing<Box<Member>>) {
        for (member, reason) in closing {
            self.close_member(member, Some(reason));
        }
    }

    /// Closes a connection, and publishes its closed event unless `reason` is `None`.
    pub(crate) fn close_member(&self, member: Box<Member>, reason: Option<ConnectionClosedReason>) {
        if let Some(reason) = reason {
            self.events.closed(member.id, reason, None);
        }
        member.established.close();
    }

    /// Closes connections in the worker. If the transport panics while it closes a connection, the
    /// others are still closed.
    pub(crate) fn close_members(
        &self,
        members: impl IntoIterator<Item = Box<Member>>,
        reason: Option<ConnectionClosedReason>,
    ) {
        for member in members {
            // This is unwind safe, because the connection, the only state that may be inconsistent,
            // is dropped.
            let closing = AssertUnwindSafe(|| self.close_member(member, reason));
            // The panic hook has already reported the panic.
            let _ = catch_unwind(closing);
        }
    }

    /// Shuts the pool down because its worker was dropped early.
    pub(crate) fn runtime_shut_down(&self) {
        self.change(Machine::runtime_shut_down);
        while let Some((members, reason)) = self.core.with(Machine::take_to_close) {
            self.close_members(members, reason);
        }
    }

    /// Performs the worker's tasks in a pool without a worker, in which check-outs open their
    /// connections themselves.
    pub(crate) fn work_by_caller(&self) {
        loop {
            let now = self.clock().now();
            match self.core.with(|machine| machine.work(now, &mut None)) {
                Work::Urgent(urgent) => self.do_urgent(urgent),
                Work::Close(members, reason) => self.close_members(members, reason),
                // Check-outs notice the cancellation themselves.
                Work::Cancel => {}
                Work::Dial | Work::DropEarly | Work::Open(_) | Work::Wait(_) | Work::End => return,
            }
        }
    }

    /// Performs the worker's tasks in a pool without a worker, at the end of a call from the
    /// topology, which holds its lock during the call.
    ///
    /// Behind a load balancer, closing a connection is reported to the topology, which is not
    /// possible under its lock, so connections are closed at the next check-out instead.
    fn work_under_lock(&self) {
        if !self.by_caller {
            return;
        }
        if !self.context.options.load_balanced {
            self.work_by_caller();
            return;
        }
        while let Some(urgent) = self.core.with(Machine::urgent_work) {
            self.do_urgent(urgent);
        }
    }

    pub(crate) fn do_urgent(&self, urgent: Urgent) {
        match urgent {
            Urgent::Interrupt(interruption) => self.interrupts.interrupt(interruption),
            Urgent::Wake(wakers) => wakers.into_iter().for_each(Waker::wake),
        }
    }

    /// Makes the pool ready. Connections for `minPoolSize` are opened after a random delay.
    pub(crate) fn ready(&self) {
        let spread = self.context.options.spread.as_nanos().try_into().unwrap_or(u64::MAX);
        let fill_at = (spread > 0).then(|| {
            let now = self.clock().now();
            let seed = self.context.seed ^ now.as_nanos();
            now + Duration::from_nanos(Rng::new(seed).below(spread))
        });
        self.change(|machine| machine.ready(fill_at));
    }

    /// Makes stale all connections that were opened before the clear.
    pub(crate) fn clear(&self, clear: &PoolClear) {
        self.change(|machine| machine.clear(clear));
        self.work_under_lock();
    }

    /// Closes the pool. The idle connections are closed later, but the events that report their
    /// closing are published immediately.
    pub(crate) fn close(&self) {
        let Some(idle) = self.core.with(Machine::close) else {
            return;
        };
        if self.events.wants(EventName::ConnectionClosed) {
            for idle in &idle {
                let reason = ConnectionClosedReason::PoolClosed;
                self.events.closed(idle.connection.id, reason, None);
            }
        }
        self.events.pool_closed();
        self.change(|machine| machine.close_later(idle));
        self.work_under_lock();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(worker) = self.core.with(Machine::take_worker) {
            worker.wake();
        }
    }
}

/// An attempt to open a connection. Dropping an unfinished attempt removes it from the pool.
struct Opening {
    pool: Weak<Inner>,
    /// Publishes the closed event of an attempt that outlives the pool (J-26).
    events: PoolEvents,
    id: u64,
    is_open: bool,
}

impl Opening {
    fn connection(&self) -> ConnectionId {
        ConnectionId { driver: self.id, server: None }
    }

    /// Marks the attempt as ended, so that dropping this value has no effect.
    fn end(&mut self) {
        self.is_open = false;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let reason = ConnectionClosedReason::Error;
        self.events.closed(self.connection(), reason, None);
        if let Some(pool) = self.pool.upgrade() {
            let is_cancelled = pool.core.with(|machine| machine.is_cancelled(self.id));
            let failure =
                if is_cancelled { AttemptFailure::Cancelled } else { AttemptFailure::Dropped };
            pool.fail(self.id, failure);
        }
    }
}

#[cfg(all(test, not(sdam_loom)))]
mod tests;

/// Publishes an event of a pool. The event's fields are computed only if the sink wants the event.
macro_rules! publish {
    ($events:expr, $name:ident { $($field:ident $(: $value:expr)?),* }) => {
        $events.publish(EventName::$name, |server, address| {
            EventKind::$name { server, address, $($field $(: $value)?),* }
        })
    };
}

/// Publishes the events of one pool. Builds only the events that the sink wants.
#[derive(Clone, Debug)]
pub(crate) struct PoolEvents(pub(crate) PoolContext);

impl PoolEvents {
    pub(crate) fn pool_created(&self, options: &PoolOptions) {
        publish!(self, PoolCreated { options: Arc::new(options.clone()) });
    }

    pub(crate) fn pool_closed(&self) {
        publish!(self, PoolClosed {});
    }

    pub(crate) fn created(&self, connection: ConnectionId) {
        publish!(self, ConnectionCreated { connection });
    }

    pub(crate) fn ready(&self, connection: ConnectionId, since: Instant) {
        publish!(self, ConnectionReady { connection, duration: self.elapsed(since) });
    }

    pub(crate) fn closed(
        &self,
        connection: ConnectionId,
        reason: ConnectionClosedReason,
        error: Option<&Error>,
    ) {
        let error = || error.cloned().map(Error::without_context);
        publish!(self, ConnectionClosed { connection, reason, error: error() });
    }

    /// Publishes that a check-out has started. The returned value publishes its success or failure.
    pub(crate) fn check_out_started(&self) -> CheckOutEvents<'_> {
        publish!(self, ConnectionCheckOutStarted {});
        let is_wanted = self.wants(EventName::ConnectionCheckedOut)
            || self.wants(EventName::ConnectionCheckOutFailed);
        CheckOutEvents(is_wanted.then(|| (self, self.now())))
    }

    pub(crate) fn checked_in(&self, connection: ConnectionId) {
        publish!(self, ConnectionCheckedIn { connection });
    }

    pub(crate) fn wants(&self, name: EventName) -> bool {
        self.0.events.wants(name)
    }

    fn publish(&self, name: EventName, kind: impl FnOnce(ServerId, ServerAddress) -> EventKind) {
        if self.wants(name) {
            let kind = kind(self.0.server, self.0.address.clone());
            self.0.events.publish(self.now(), kind);
        }
    }

    fn now(&self) -> Instant {
        self.0.backend.clock.now()
    }

    fn elapsed(&self, since: Instant) -> Duration {
        self.now().since(since)
    }
}

/// The outcome of a check-out, which has yet to be published. Dropping it publishes a failure.
#[must_use = "a check-out that is dropped was cancelled"]
pub(crate) struct CheckOutEvents<'p>(
    /// The events and the start time; `None` if the outcome is not wanted or already published.
    Option<(&'p PoolEvents, Instant)>,
);

impl CheckOutEvents<'_> {
    pub(crate) fn succeeded(mut self, connection: ConnectionId) {
        if let Some((events, start)) = self.0.take() {
            let duration = events.elapsed(start);
            publish!(events, ConnectionCheckedOut { connection, duration });
        }
    }

    pub(crate) fn failed(mut self, error: &Error) {
        let reason = match error.kind() {
            ErrorKind::PoolClosed | ErrorKind::RuntimeShutDown => CheckOutFailure::PoolClosed,
            ErrorKind::WaitQueueTimeout => CheckOutFailure::Timeout,
            _ => CheckOutFailure::ConnectionError,
        };
        self.publish_failure(reason, || format!("{:#}", error.clone().without_context()).into());
    }

    fn publish_failure(&mut self, reason: CheckOutFailure, failure: impl FnOnce() -> Arc<str>) {
        if let Some((events, start)) = self.0.take() {
            let duration = events.elapsed(start);
            publish!(events, ConnectionCheckOutFailed { reason, failure: failure(), duration });
        }
    }
}

impl Drop for CheckOutEvents<'_> {
    fn drop(&mut self) {
        self.publish_failure(CheckOutFailure::Cancelled, || "the check-out was cancelled".into());
    }
}
