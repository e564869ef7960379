//! Tests over real sockets. The tests measure time only with the deployment's clock.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use bson::doc;
use sdam_core::time::Instant;
use sdam_live::{Client, Error};
use sdam_testkit::ManualClock;
use sdam_transport::clock::Clock as _;
use socket2::{Domain, Socket, Type};

use super::{Listen, Served};
use crate::{Action, Blueprint, timing::Timing};

/// Connects to a process, or to the load balancer in front of all processes.
fn connect(server: &Served, index: usize) -> Result<Client, Error> {
    Client::connect(server.places()[index].1.as_str().parse().unwrap())
}

#[test]
fn any_process_of_any_deployment_is_killed_and_restarted() {
    for (blueprint, last) in [(Blueprint::standalone(), 0), (Blueprint::sharded(3), 2)] {
        let server = blueprint.serve().unwrap();
        let mut client = connect(&server, last).unwrap();
        client.hello().unwrap();
        server.kill(last as u16).unwrap();
        assert!(client.hello().is_err());
        assert!(connect(&server, last).is_err());
        // No other process can take the port meanwhile.
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let port = server.places()[last].1.port().unwrap();
        let bound = other.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into());
        assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        server.apply(&Action::Restart((last as u16).into())).unwrap();
        let hello = connect(&server, last).unwrap().hello().unwrap();
        assert!(hello.get_bool("isWritablePrimary").unwrap());
    }
}

#[test]
fn a_load_balancer_uses_each_mongos_in_turn_and_none_that_was_killed() {
    let server = Blueprint::load_balanced(2).serve().unwrap();
    let service = || {
        let hello = doc! { "hello": 1, "loadBalanced": true };
        let reply = connect(&server, 0).ok()?.run_command("admin", hello);
        reply.ok()?.get_object_id("serviceId").ok()
    };
    let both = [service().unwrap(), service().unwrap()];
    assert_ne!(both[0], both[1]);
    assert_eq!(service(), Some(both[0]), "each mongos in turn");
    server.kill(0).unwrap();
    assert_eq!([service(), service()], [Some(both[1]); 2]);
    server.kill(1).unwrap();
    assert_eq!(service(), None, "no member is left");
    server.restart(0).unwrap();
    let new = service().unwrap();
    assert!(!both.contains(&new), "it is another process");
}

#[test]
fn a_set_that_is_too_slow_for_its_timers_still_answers_and_ends() {
    let mut timing = Timing::fast();
    timing.heartbeat_interval = Duration::from_micros(10);
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let rs = Blueprint::replica_set(20).timing(timing).serve().unwrap();
        for _ in 0..10 {
            assert_eq!(rs.connections().unwrap(), 0);
        }
        drop(rs);
        ended.send(()).unwrap();
    });
    let ended = end.recv_timeout(Duration::from_secs(60));
    assert!(ended.is_ok(), "it answers no more");
}

#[test]
fn a_deployment_follows_the_clock_that_it_was_given() {
    let clock = ManualClock::default();
    let listen = Listen::new().clock(Arc::new(clock.clone()));
    let rs = listen.serve(Blueprint::replica_set(3)).unwrap();
    let old = rs.primary().unwrap().unwrap();
    rs.kill(old).unwrap();
    let is_down = |rs: &Served| rs.primary().unwrap().is_none_or(|primary| primary == old);
    assert!(is_down(&rs), "no time has passed");
    // An election takes less than 5 s, and the deployment handles each call after its timers.
    let limit = Instant::EPOCH + Duration::from_secs(5);
    while is_down(&rs) {
        assert!(clock.now() < limit, "the timers do not fire");
        clock.advance(Duration::from_millis(10));
    }
}

#[test]
fn dropping_the_server_closes_its_ports_and_connections() {
    let rs = Blueprint::replica_set(1).serve().unwrap();
    let place = rs.places()[0].1.as_str().parse().unwrap();
    let mut client = Client::connect(place).unwrap();
    drop(rs);
    assert!(client.hello().is_err());
    assert!(Client::connect(place).is_err());
}
