//! Tests of connections through proxies, with the client of the transport.

use std::time::Duration;

use sdam_core::{
    error::{Error, Stage},
    options::{Options, ProxyOptions},
};
use sdam_transport::{Connection, layers::Layers};

use super::*;
use crate::{
    Blueprint, MemberId,
    runtime::{DnsFault, Latency, Sim},
};

const MEMBER: MemberId = MemberId(0);

fn proxy() -> ServerAddress {
    ServerAddress::new("proxy", 1080)
}

/// Returns a world with a server and a proxy.
fn sim(login: Option<(&str, &str)>) -> Sim {
    let sim = Sim::new(1, &Blueprint::standalone(ServerAddress::new("a", 27017)));
    sim.proxies().add(proxy(), login);
    sim
}

/// Connects to `host` through the proxy within ten seconds, with TLS if the server requires it.
fn connect(
    sim: &Sim,
    host: &str,
    login: Option<(&str, &str)>,
) -> Result<Box<dyn Connection>, Error> {
    let io = sim.runtime().io;
    let mut options = ProxyOptions::new("proxy", 1080);
    if let Some((user, password)) = login {
        options = options.with_credential(user, password);
    }
    let mut layers = Layers::default();
    layers.proxy = Some(options);
    let tls = Options::parse(&sim.uri()).unwrap().tls;
    layers.tls = tls.map(|tls| io.tls.unwrap().tls(&tls).unwrap());
    let transport = io.transport.with_layers(layers).unwrap();
    let deadline = sim.now() + Duration::from_secs(10);
    let host = ServerAddress::new(host, 27017);
    sim.block_on(transport.connect(&host, Some(deadline)))
}

/// Checks that connecting to `host` fails in the proxy stage with this message.
#[track_caller]
fn check_refused(sim: &Sim, host: &str, message: &str) {
    let error = connect(sim, host, None).unwrap_err();
    assert_eq!(error.stage(), Stage::Proxy, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn a_proxy_finds_servers_by_their_names() {
    for encrypted in [false, true] {
        for latency in [Latency::LAN, Latency::WAN] {
            let sim = sim(None);
            sim.network().set_latency(latency);
            // The program cannot look up the name of the server.
            sim.dns().set_fault("a", Some(DnsFault::NoSuchName));
            if encrypted {
                sim.tls().require();
            }
            connect(&sim, "a", None).unwrap();
            let traffic = sim.network().traffic();
            assert_eq!((traffic.proxied, traffic.direct), (1, 0));
            assert_eq!(traffic.encrypted, u64::from(encrypted));
            check_refused(&sim, "b", "the host cannot be reached from the proxy");
        }
    }
}

#[test]
fn a_proxy_with_a_login_rejects_every_other_one() {
    let login = Some(("user", "secret"));
    let sim = sim(login);
    connect(&sim, "a", login).unwrap();
    for other in [None, Some(("user", "other")), Some(("other", "secret"))] {
        let error = connect(&sim, "a", other).unwrap_err();
        assert_eq!(error.stage(), Stage::Proxy, "{error}");
        assert!(!error.to_string().contains("other"), "{error}");
    }
}

#[test]
fn a_fault_meets_new_connections_until_it_ends() {
    let sim = sim(None);
    for (fault, message) in [
        (ProxyFault::Down, "the proxy cannot be reached"),
        (ProxyFault::Stall, "did not answer in time"),
        (ProxyFault::Reject, "the proxy's rules do not allow"),
    ] {
        sim.proxies().set_fault(&proxy(), Some(fault));
        check_refused(&sim, "a", message);
        sim.network().heal();
        connect(&sim, "a", None).unwrap();
    }
    sim.network().refuse(MEMBER, true);
    check_refused(&sim, "a", "refuses connections from the proxy");
    sim.network().heal();
    sim.network().blackhole(MEMBER, true);
    check_refused(&sim, "a", "did not answer in time");
}

#[test]
fn a_reset_ends_the_connections_of_a_proxy_and_a_ruleset_none() {
    let sim = sim(None);
    let mut connection = connect(&sim, "a", None).unwrap();
    sim.proxies().set_fault(&proxy(), Some(ProxyFault::Reject));
    assert_eq!(sim.connections(), 1);
    sim.proxies().reset(&proxy());
    let error = sim.block_on(connection.recv()).unwrap_err();
    assert!(error.to_string().contains("reset"), "{error}");
    sim.proxies().set_fault(&proxy(), None);
    let mut connection = connect(&sim, "a", None).unwrap();
    sim.network().reset(MEMBER);
    sim.block_on(connection.recv()).unwrap_err();
}
