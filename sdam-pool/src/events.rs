//! The events of a pool (CMAP: "Connection Pool Monitoring").

use std::{sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind},
    event::{CheckOutFailure, ConnectionClosedReason, ConnectionId, EventKind, EventName},
    ids::ServerId,
    pool::PoolOptions,
    time::Instant,
};
use sdam_transport::pool::PoolContext;

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
