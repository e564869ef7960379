//! What single-threaded mode keeps of a server.

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

/// One server: its connection, how it is checked, its pool.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pool: Arc<dyn PoolHandle>,
    /// `None` for a load balancer, which is never checked.
    pub(super) monitor: Option<MonitorMachine>,
    /// Never belongs to an earlier generation than the pool's: clearing closes it.
    pub(super) link: Link,
    pub(super) rtt: RttWindow,
    /// What it has failed with.
    pub(super) failures: Failures,
    /// When the connection was last used.
    pub(super) used: Instant,
    /// The service behind a load balancer that the connection leads to.
    pub(super) service: Option<ObjectId>,
    /// The newest connection to a load balancer that the topology counts. It is uncounted with the
    /// next one, for an operation may report its error when the connection is closed already.
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

    /// The monitor of a server that is checked.
    pub(super) fn monitor(
        config: &Arc<MonitorConfig>,
        server: ServerId,
        address: &ServerAddress,
    ) -> MonitorMachine {
        MonitorMachine::new(Arc::clone(config), server, address.clone())
    }

    /// How long the connection has not been used; `None` if there is none.
    pub(super) fn idle(&mut self, now: Instant) -> Option<Duration> {
        self.link.wire().map(|_| now.since(self.used))
    }

    /// Whether an operation was given up before its reply, so that the connection is of no use.
    pub(super) fn is_abandoned(&mut self) -> bool {
        let wire = self.link.wire();
        wire.is_some_and(|wire| wire.exchange.is_reply_due())
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.link.disconnect();
        self.service = None;
    }

    /// Whether the monitor, having just failed, would try again without a pause.
    pub(super) fn wants_retry(&self, now: Instant) -> bool {
        let deadline = self.monitor.as_ref().and_then(MonitorMachine::deadline);
        deadline.is_some_and(|deadline| deadline <= now)
    }
}
