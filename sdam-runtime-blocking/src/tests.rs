//! Runs the conformance suite with futures that are never pending, and checks that the suite
//! detects a pending one.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use futures::pending;
use sdam_core::{address::ServerAddress, error::Error, time::Instant};
use sdam_transport::{
    async_trait, conformance,
    connect::{Connection, Transport},
    system::Epoch,
};

use super::{BlockingDial, backend, clock};

#[test]
fn io_keeps_its_contracts_and_is_never_pending() {
    conformance::blocking(&backend());
    let epoch = Epoch::begin();
    conformance::dial(BlockingDial { epoch }, clock(epoch));
}

/// A transport whose `connect` is pending at its first poll.
#[derive(Debug)]
struct Hesitant(Arc<dyn Transport>);

#[async_trait]
impl Transport for Hesitant {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        pending!();
        self.0.connect(target, deadline).await
    }
}

#[test]
fn the_suite_detects_pending_futures() {
    let mut backend = backend();
    backend.transport = Arc::new(Hesitant(Arc::clone(&backend.transport)));
    let suite = AssertUnwindSafe(|| conformance::blocking(&backend));
    let payload = panic::catch_unwind(suite).expect_err("contracts are broken");
    let message = payload.downcast_ref::<String>().unwrap();
    let named = "a_refused_connect_is_a_network_error: a future is pending, but it has to block \
                 when connecting to a port that is closed";
    assert!(message.contains(named), "{message}");
}
