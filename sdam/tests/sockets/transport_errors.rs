//! Errors of a driver's own transport.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, executor::block_on};
use sdam::{
    Connection, Error, EventKind, ServerAddress, Topology, Transport, error::Stage,
    events::EventName, runtime::Instant,
};
use sdam_events::channel::unbounded;

use crate::{PATIENCE, on, tokio};

/// A driver's transport with its own error type.
#[derive(Debug)]
struct Driver;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("driver error {0}")]
struct DriverError(u8);

#[async_trait]
impl Transport for Driver {
    async fn connect(
        &self,
        _: &ServerAddress,
        _: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        Err(Error::network(Stage::Dns, "no address").with_source(DriverError(7)))
    }
}

#[test]
fn the_error_of_a_drivers_transport_is_kept_by_descriptions_and_events() {
    let host = tokio();
    let mut runtime = on(&host);
    runtime.backend.transport = Arc::new(Driver);
    let (sink, mut events) = unbounded();
    let topology = Topology::builder("mongodb://a.example.com")
        .unwrap()
        .sink(sink.interested_in(EventName::ServerHeartbeatFailed.into()))
        .start(runtime)
        .unwrap();
    let failed = topology
        .wait_for(|snapshot| snapshot.description().servers().first()?.error.clone(), PATIENCE);
    let error = block_on(failed).unwrap();
    assert_eq!(error.source_as(), Some(&DriverError(7)));
    assert_eq!(error.message(), "no address: driver error 7");
    let EventKind::ServerHeartbeatFailed { failure, .. } = block_on(events.next()).unwrap().kind
    else {
        unreachable!("the sink wants nothing else");
    };
    assert_eq!(failure.source_as(), Some(&DriverError(7)));
    block_on(topology.close());
}
