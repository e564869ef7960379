//! The state of one server in single-threaded mode.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    ids::{ObjectId, ServerId},
    monitor::{MonitorConfig, MonitorMachine},
    pool::PoolHandle,
    rtt::RttWindow,
    time::Instant,
};

use crate::{failures::Failures, link::Link, service::ServiceConnection};

/// A server's connection, monitor and pool.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pool: Arc<dyn PoolHandle>,
    /// `None` for a load balancer, which is never checked.
    pub(super) monitor: Option<MonitorMachine>,
    /// Its generation is never older than the pool's: clearing the pool closes it.
    pub(super) link: Link,
    pub(super) rtt: RttWindow,
    pub(super) failures: Failures,
    /// When the connection was last used.
    pub(super) used: Instant,
    /// The service behind a load balancer that the connection leads to.
    pub(super) service: Option<ObjectId>,
    /// The newest counted connection to a load balancer. It is uncounted only when the next one
    /// opens, because an operation may report its error after the connection is closed.
    pub(super) counted: Option<ServiceConnection>,
    /// The `maxWireVersion` of the connection to that service.
    pub(super) max_wire_version: i32,
}

impl Member {
    pub(super) fn new(pool: Arc<dyn PoolHandle>, monitor: Option<MonitorMachine>) -> Self {
        Self {
            pool,
            monitor,
            link: Link::default(),
            rtt: RttWindow::new(),
            failures: Failures::default(),
            used: Instant::EPOCH,
            service: None,
            counted: None,
            max_wire_version: 0,
        }
    }

    /// Creates the monitor of a server that is checked.
    pub(super) fn monitor(
        config: &Arc<MonitorConfig>,
        server: ServerId,
        address: &ServerAddress,
    ) -> MonitorMachine {
        MonitorMachine::new(Arc::clone(config), server, address.clone())
    }

    /// Returns how long the connection has been idle; `None` if there is none.
    pub(super) fn idle(&mut self, now: Instant) -> Option<Duration> {
        self.link.wire().map(|_| now.since(self.used))
    }

    /// Returns whether an operation was dropped before its reply: the connection is unusable.
    pub(super) fn is_abandoned(&mut self) -> bool {
        let wire = self.link.wire();
        wire.is_some_and(|wire| wire.exchange.is_reply_due())
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.link.disconnect();
        self.service = None;
    }

    /// Returns whether the monitor, after a failed check, would retry without a pause.
    pub(super) fn wants_retry(&self, now: Instant) -> bool {
        let deadline = self.monitor.as_ref().and_then(MonitorMachine::deadline);
        deadline.is_some_and(|deadline| deadline <= now)
    }
}
