//! Tests of connections through proxies, with the proxy client of `sdam-transport`.

use std::time::Duration;

use sdam_core::{
    error::{Error, Stage},
    options::ProxyOptions,
};
use sdam_transport::{connect::Connection, layers::Layers};

use super::*;
use crate::{Blueprint, MemberId, runtime::Sim};

const MEMBER: MemberId = MemberId(0);

fn proxy() -> ServerAddress {
    ServerAddress::new("proxy", 1080)
}

/// Returns a simulation with a server and a proxy.
fn sim() -> Sim {
    let sim = Sim::new(1, &Blueprint::standalone());
    sim.proxies().add(proxy(), None);
    sim
}

/// Connects to the server through the proxy within ten seconds.
fn connect(sim: &Sim) -> Result<Box<dyn Connection>, Error> {
    let mut layers = Layers::default();
    layers.proxy = Some(ProxyOptions::new("proxy", 1080));
    let transport = sim.runtime().backend.transport.with_layers(layers).unwrap();
    let deadline = sim.now() + Duration::from_secs(10);
    let host = ServerAddress::new("a", 27017);
    sim.block_on(transport.connect(&host, Some(deadline)))
}

/// Checks that connecting fails in the stage `Proxy` with this message.
#[track_caller]
fn check_refused(sim: &Sim, message: &str) {
    let error = connect(sim).unwrap_err();
    assert_eq!(error.stage(), Stage::Proxy, "{error}");
    assert!(error.message().contains(message), "{error}");
}

#[test]
fn a_fault_meets_new_connections_until_it_ends() {
    let sim = sim();
    for (fault, message) in [
        (ProxyFault::Down, "the proxy cannot be reached"),
        (ProxyFault::Stall, "did not answer in time"),
        (ProxyFault::Reject, "the proxy's rules do not allow"),
    ] {
        sim.proxies().set_fault(&proxy(), Some(fault));
        check_refused(&sim, message);
        sim.network().heal();
        connect(&sim).unwrap();
    }
    sim.network().refuse(MEMBER, true);
    check_refused(&sim, "refuses connections from the proxy");
    sim.network().heal();
    sim.network().blackhole(MEMBER, true);
    check_refused(&sim, "did not answer in time");
}

#[test]
fn a_reset_ends_the_connections_of_a_proxy_and_a_ruleset_none() {
    let sim = sim();
    let mut connection = connect(&sim).unwrap();
    sim.proxies().set_fault(&proxy(), Some(ProxyFault::Reject));
    assert_eq!(sim.connections(), 1);
    sim.proxies().reset(&proxy());
    let error = sim.block_on(connection.recv()).unwrap_err();
    assert!(error.message().contains("reset"), "{error}");
    sim.proxies().set_fault(&proxy(), None);
    let mut connection = connect(&sim).unwrap();
    sim.network().reset(MEMBER);
    sim.block_on(connection.recv()).unwrap_err();
}
