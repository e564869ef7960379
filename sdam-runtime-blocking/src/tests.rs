//! The contracts of the seams, by futures that are never pending, and whether the suite notices
//! who breaks them.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use async_trait::async_trait;
use futures::{future::BoxFuture, pending};
use sdam_core::{address::ServerAddress, error::Stage, time::Instant};
use sdam_transport::{
    clock::Clock,
    conformance,
    connect::{Connection, Transport},
    error::TransportError,
    runtime::Io,
    system::Epoch,
};

use super::{BlockingClock, BlockingDial, io};

#[test]
fn io_keeps_its_contracts_and_is_never_pending() {
    conformance::blocking(&io());
    let epoch = Epoch::begin();
    let clock = Arc::new(BlockingClock::new(epoch));
    conformance::dial(BlockingDial::new(epoch), clock);
}

/// Runs the suite and expects it to name these checks.
fn caught(io: &Io, checks: &[&str]) {
    let suite = AssertUnwindSafe(|| conformance::blocking(io));
    let payload = panic::catch_unwind(suite).expect_err("contracts are broken");
    let message = payload.downcast_ref::<String>().unwrap();
    for check in checks {
        assert!(message.contains(check), "{check} is not among {message}");
    }
}

/// Has timers that run while it stands still, so that all of them are early.
#[derive(Debug)]
struct StoppedClock {
    timers: Arc<dyn Clock>,
    now: Instant,
}

impl Clock for StoppedClock {
    fn now(&self) -> Instant {
        self.now
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.timers.sleep_until(deadline)
    }
}

#[test]
fn the_suite_notices_timers_that_are_early() {
    let mut io = io();
    io.clock = Arc::new(StoppedClock {
        now: io.clock.now(),
        timers: io.clock,
    });
    caught(&io, &["timers_are_ready_in_order_and_never_early"]);
}

/// Is pending once, or says the wrong stage.
#[derive(Debug)]
struct OtherTransport {
    inner: Arc<dyn Transport>,
    pending: bool,
    stage: Stage,
}

#[async_trait]
impl Transport for OtherTransport {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, TransportError> {
        if self.pending {
            pending!();
        }
        let connected = self.inner.connect(target, deadline).await;
        connected.map_err(|error| error.at(self.stage))
    }
}

#[test]
fn the_suite_notices_futures_that_are_pending_and_stages_that_are_wrong() {
    let mut io = io();
    let inner = Arc::clone(&io.transport);
    for (pending, stage, checks) in [
        (
            true,
            Stage::Connect,
            "a_refused_connect_is_a_network_error: a future is pending",
        ),
        (
            false,
            Stage::Connect,
            "a_host_name_that_cannot_be_fails_at_stage_dns: Network at Dns",
        ),
        (
            false,
            Stage::Dns,
            "a_refused_connect_is_a_network_error: Network at Connect",
        ),
    ] {
        io.transport = Arc::new(OtherTransport {
            inner: Arc::clone(&inner),
            pending,
            stage,
        });
        caught(&io, &[checks]);
    }
}
