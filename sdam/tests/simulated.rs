//! The engine with a simulated deployment: a seed reproduces every run, in virtual time.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use sdam::{
    ClientMetadata, Criteria, Event, EventKind, Interest, Options, ServerAddress, Snapshot,
    Topology, TopologyBuilder, TopologyType, UnixTime,
};
use sdam_events::{channel::unbounded, record::RecordSink, replay::replay};
use sdam_sim::{
    Blueprint, MemberId,
    config::SetConfig,
    runtime::{Latency, Sim},
};
use sdam_transport::handshake::Environment;

const LONG: Duration = Duration::from_secs(600);

fn simulation(seed: u64) -> Sim {
    let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
    Sim::new(seed, &Blueprint::replica_set(SetConfig::new("rs", hosts)))
}

fn complete(snapshot: &Snapshot) -> Option<ServerAddress> {
    let description = snapshot.description();
    let known = description
        .servers()
        .iter()
        .all(|server| server.server_type.is_available());
    description
        .primary()
        .filter(|_| known)
        .map(|server| server.address.clone())
}

#[test]
fn a_selected_server_has_the_round_trip_times_of_its_monitor() {
    let sim = simulation(5);
    sim.network().set_latency(Latency::WAN);
    // No monitor measures servers behind a load balancer.
    for (uri, is_measured) in [
        (sim.uri(), true),
        ("mongodb://a/?loadBalanced=true".to_owned(), false),
    ] {
        let builder = Topology::builder(&uri).unwrap();
        sim.block_on(async {
            let topology = builder.start(sim.runtime()).unwrap();
            let server = topology.select(&Criteria::write()).await.unwrap();
            let snapshot = topology.snapshot();
            let known = snapshot.server_by_id(server.id()).unwrap();
            assert_eq!(server.rtt(), known.description().rtt);
            let average = server.rtt().map(|rtt| rtt.average);
            assert_eq!(
                average.is_some_and(|average| !average.is_zero()),
                is_measured
            );
            topology.close().await;
        });
    }
}

#[test]
fn closing_takes_no_time_while_monitors_pause() {
    // F-43
    let sim = simulation(4);
    for member in 0..3 {
        sim.kill(MemberId(member)).unwrap();
    }
    let uri = format!("{}&serverSelectionTimeoutMS=250", sim.uri());
    let topology = Topology::builder(&uri)
        .unwrap()
        .start(sim.runtime())
        .unwrap();
    // It requests a check of each server 500 ms after the first one.
    sim.block_on(topology.select(&Criteria::write()))
        .unwrap_err();
    let before = sim.now();
    sim.block_on(topology.close());
    let took = sim.now().since(before);
    assert_eq!(took, Duration::ZERO);
}

/// Returns the recording of a failover in the year 2024, and its events.
fn recorded(seed: u64) -> (String, Vec<Event>) {
    let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
    let set = Blueprint::replica_set(SetConfig::new("rs", hosts));
    let sim = Sim::new(seed, &set.epoch_millis(1_704_067_200_000));
    let options = Options::parse(&sim.uri()).unwrap();
    let recording = Arc::new(RecordSink::new(Vec::new(), &options).unwrap());
    let (sink, events) = unbounded();
    let builder = TopologyBuilder::new(options).sink(Arc::clone(&recording));
    let builder = builder.sink(sink);
    let events = sim.block_on(async {
        let topology = builder.start(sim.runtime()).unwrap();
        topology.wait_for(complete, LONG).await.unwrap();
        sim.step_down().unwrap();
        topology.wait_for(complete, LONG).await.unwrap();
        topology.close().await;
        events.collect().await
    });
    drop(sim);
    let recording = Arc::into_inner(recording).unwrap().finish().unwrap();
    (String::from_utf8(recording).unwrap(), events)
}

#[test]
fn events_and_recordings_have_the_wall_clock_time_of_the_world() {
    let (recording, events) = recorded(11);
    assert_eq!(
        recording,
        recorded(11).0,
        "the wall clock is simulated, too"
    );
    assert!(events.len() > 10);
    for event in &events {
        let millis = 1_704_067_200_000 + event.at.as_nanos() / 1_000_000;
        assert_eq!(event.time, Some(UnixTime::from_millis(millis)));
    }
    // The recordings of earlier versions.
    let mut old = String::new();
    for line in recording.lines() {
        let (before, after) = line.split_once(r#""time":""#).unwrap_or((line, ""));
        let (time, after) = after.split_once(r#"","#).unwrap_or_default();
        assert!(
            time.starts_with("2024-01-01T00:0") || before.contains("version"),
            "{line}"
        );
        old.extend([before, after, "\n"]);
    }
    let old = old.replacen("\"version\":4", "\"version\":3", 1);
    assert!(old.contains("version\":3") && !old.contains("2024"));
    for recording in [&recording, &old] {
        let outcome = replay(recording.as_bytes()).unwrap();
        assert_eq!((outcome.divergence, outcome.cut_off), (None, None));
        assert!(outcome.matched > 10);
    }
}

/// Runs a day with a step-down, a silent primary and a partition; returns trace and events.
fn outage(seed: u64) -> (u64, Vec<Event>) {
    let sim = simulation(seed);
    sim.network().set_latency(Latency::WAN);
    let (sink, mut events) = unbounded();
    sim.block_on(async {
        let builder = Topology::builder(&sim.uri()).unwrap().sink(sink);
        let topology = builder.start(sim.runtime()).unwrap();
        let first = topology.wait_for(complete, LONG).await.unwrap();
        sim.step_down().unwrap();
        // The new primary may be known before the loss of the old one.
        let other = |snapshot: &Snapshot| complete(snapshot).filter(|primary| *primary != first);
        let second = topology.wait_for(other, LONG).await.unwrap();
        let selected = topology.select(&Criteria::write()).await.unwrap();
        assert_eq!(*selected.address(), second);
        drop(selected);
        let lost = |snapshot: &Snapshot| {
            let description = snapshot.description();
            (description.topology_type() == TopologyType::ReplicaSetNoPrimary).then_some(())
        };
        let silent = sim.status().primary().unwrap().id;
        sim.network().blackhole(silent, true);
        topology.wait_for(lost, LONG).await.unwrap();
        sim.network().heal();
        topology.wait_for(complete, LONG).await.unwrap();
        topology.close().await;
    });
    assert_eq!(
        (sim.tasks(), sim.connections(), sim.timers()),
        (0, 0, 0),
        "no task, connection or timer is left"
    );
    let events = std::iter::from_fn(|| events.try_next()).collect();
    (sim.trace(), events)
}

#[test]
fn a_seed_reproduces_its_run_and_other_seeds_give_other_runs() {
    let mut traces = Vec::new();
    for seed in 0..10 {
        let (trace, events) = outage(seed);
        let (again, same) = outage(seed);
        assert_eq!(trace, again, "seed {seed}");
        assert_eq!(format!("{events:?}"), format!("{same:?}"), "seed {seed}");
        assert!(matches!(
            events.last().unwrap().kind,
            EventKind::TopologyClosed
        ));
        traces.push(trace);
    }
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 10);
}

/// F-21, F-20: `auto` polls if and only if the environment names exactly one FaaS provider.
#[test]
fn clients_in_a_faas_environment_poll() {
    let check = |variables: &[&str], mode: &str, streams: bool| {
        let sim = simulation(1);
        let set = |environment: Environment, name: &&str| environment.with_variable(name, "1");
        let environment = variables.iter().fold(Environment::default(), set);
        let (sink, mut events) = unbounded();
        let uri = format!("{}&serverMonitoringMode={mode}", sim.uri());
        let topology = Topology::builder(&uri)
            .unwrap()
            .metadata(ClientMetadata::new("test", "1", &environment).unwrap())
            .sink(sink.interested_in(Interest::HEARTBEATS))
            .start(sim.runtime())
            .unwrap();
        sim.block_on(topology.wait_for(complete, LONG)).unwrap();
        sim.run_for(Duration::from_secs(60));
        let mut awaited = 0;
        while let Some(event) = events.try_next() {
            if let EventKind::ServerHeartbeatStarted(heartbeat) = event.kind {
                awaited += u32::from(heartbeat.awaited);
            }
        }
        assert_eq!(awaited > 0, streams, "{variables:?} {mode}");
    };
    check(&[], "auto", true);
    check(&[], "poll", false);
    check(&["AWS_LAMBDA_RUNTIME_API"], "auto", false);
    check(&["AWS_LAMBDA_RUNTIME_API"], "stream", true);
    // Vercel runs on AWS; any other two providers contradict each other.
    check(&["AWS_LAMBDA_RUNTIME_API", "VERCEL"], "auto", false);
    check(&["AWS_LAMBDA_RUNTIME_API", "K_SERVICE"], "auto", true);
}
