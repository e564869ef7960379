//! Simulated deployments on loopback.

use std::time::{Duration, Instant};

use bson::doc;
use sdam::{
    BlockingTopology, Bound, Criteria, ErrorKind, EventKind, ReadMode, SelectionError, ServerType,
    TopologyType, Warning,
};
use sdam_events::channel::unbounded;
use sdam_sim::serve::{Builder, ReplicaSet};

use crate::{PATIENCE, read, run, start, write};

/// Returns the name of the primary as known to the deployment itself.
fn primary(set: &ReplicaSet) -> String {
    let status = set.status().unwrap();
    status.primary().unwrap().address.to_string()
}

#[test]
fn h_1_h_5_the_whole_set_is_found_by_the_first_selection() {
    let set = ReplicaSet::start(3).unwrap();
    let mut topology = start(set.uri(), "");
    assert_eq!(set.connections().unwrap(), 0, "B-1");
    let selected = topology.select(&Criteria::write()).unwrap();
    assert_eq!(selected.address().to_string(), primary(&set));
    assert_eq!(
        selected.topology_type(),
        TopologyType::ReplicaSetWithPrimary
    );
    let secondary = topology.select(&read(ReadMode::Secondary)).unwrap();
    assert_ne!(secondary.address(), selected.address());
    assert_eq!(set.connections().unwrap(), 3, "one to each member");
    let reply = run(
        &mut topology,
        &selected,
        &doc! { "ping": 1, "$db": "admin" },
    )
    .unwrap();
    assert_eq!(reply.get("ok"), Some(&1.0.into()));
    assert_eq!(set.connections().unwrap(), 3, "and no other for operations");
}

#[test]
fn a_string_of_either_kind_is_resolved_before_the_topology_is_built() {
    let set = ReplicaSet::start(1).unwrap();
    let builder = BlockingTopology::resolve(set.uri()).unwrap();
    let mut topology = builder.blocking().unwrap();
    assert!(topology.select(&Criteria::write()).is_ok());
    let error = BlockingTopology::resolve("mongodb+srv://a.example.com:1").unwrap_err();
    assert!(!error.is_lookup(), "{error}");
}

#[test]
fn tls_and_proxy_options_are_refused_before_any_connection_is_opened() {
    // B-36
    let set = ReplicaSet::start(1).unwrap();
    for (options, name) in [
        ("tls=1", "tls"),
        ("tls=True", "tls"),
        ("ssl=yes", "ssl"),
        ("proxyHost=", "proxyHost"),
        #[cfg(not(feature = "tls"))]
        ("tls=true", "tls"),
        #[cfg(not(feature = "tls"))]
        ("tlsCAFile=a", "tls"),
    ] {
        let builder = BlockingTopology::builder(&format!("{}&{options}", set.uri())).unwrap();
        let error = builder.blocking().unwrap_err();
        let names_it = error.to_string().starts_with(&format!("`{name}`"));
        assert!(names_it, "{error}");
    }
    assert_eq!(set.connections().unwrap(), 0);
    // Kept, because dropping a topology closes its connections.
    let mut topology = start(set.uri(), "tls=false");
    topology.select(&Criteria::write()).unwrap();
    assert_eq!(set.connections().unwrap(), 1, "the connection is counted");
}

#[test]
fn the_topology_reports_configuration_warnings() {
    // B-34
    let topology = start("mongodb://a/?foo=1", "serverMonitoringMode=poll");
    let warned = topology.warnings().iter().map(Warning::option);
    assert_eq!(warned.collect::<Vec<_>>(), ["foo", "serverMonitoringMode"]);
}

#[test]
fn i_38_the_next_write_detects_a_step_down_and_finds_the_new_primary() {
    let set = ReplicaSet::start(3).unwrap();
    let mut topology = start(set.uri(), "serverSelectionTryOnce=false");
    let old = write(&mut topology);
    assert_eq!(old, primary(&set));
    set.step_down().unwrap();
    let new = write(&mut topology);
    assert_ne!(new, old);
    assert_eq!(new, primary(&set));
    assert_eq!(
        topology
            .description()
            .primary()
            .unwrap()
            .address
            .to_string(),
        new
    );
}

#[test]
fn i_15_h_6_a_killed_primary_is_replaced_and_found_again_when_it_is_back() {
    let set = ReplicaSet::start(3).unwrap();
    let mut topology = start(
        set.uri(),
        "serverSelectionTryOnce=false&connectTimeoutMS=2000",
    );
    let old = write(&mut topology);
    let member = set.primary().unwrap().unwrap();
    set.kill(member).unwrap();
    let new = write(&mut topology);
    assert_ne!(new, old);
    set.restart(member).unwrap();
    let begun = Instant::now();
    let known = |topology: &BlockingTopology| {
        let description = topology.description();
        description
            .servers()
            .iter()
            .all(|server| server.server_type.is_available())
    };
    while !known(&topology) {
        assert!(begun.elapsed() < PATIENCE, "{}", topology.description());
        // Each of these waits until half a second after the previous one.
        topology.scan();
    }
}

#[test]
fn h_15_a_member_that_hangs_delays_one_scan_by_its_timeout() {
    let set = ReplicaSet::start(3).unwrap();
    let primary = primary(&set);
    let status = set.status().unwrap();
    let frozen = status
        .members
        .iter()
        .find(|member| member.address.to_string() != primary)
        .unwrap();
    set.freeze(frozen.id).unwrap();
    let timeout = Duration::from_millis(300);
    let mut topology = start(set.uri(), "connectTimeoutMS=300");
    let begun = Instant::now();
    let selected = topology.select(&Criteria::write()).unwrap();
    assert!(begun.elapsed() >= timeout, "the scan is complete");
    assert_eq!(selected.address().to_string(), primary);
    let description = topology.description();
    let hung = description.server(&frozen.address).unwrap();
    assert_eq!(hung.server_type, ServerType::Unknown);
    assert_eq!(hung.error.as_ref().unwrap().kind, ErrorKind::Timeout);
    // H-6: the server is skipped for now, so another scan is quick.
    let last = hung.last_update_time;
    topology.scan();
    let description = topology.description();
    let hung = description.server(&frozen.address).unwrap();
    assert_eq!(hung.last_update_time, last);
}

#[test]
fn h_12_a_connection_that_broke_while_unused_is_detected_before_an_operation_uses_it() {
    let set = ReplicaSet::start(3).unwrap();
    // With zero, every selection probes its connection.
    let builder = BlockingTopology::builder(set.uri())
        .unwrap()
        .options(|options| {
            options.socket_check_interval = Duration::ZERO;
            options.server_selection_try_once = Some(false);
        });
    let mut topology = builder.blocking().unwrap();
    let old = topology.select(&Criteria::write()).unwrap();
    let member = set.primary().unwrap().unwrap();
    set.kill(member).unwrap();
    let selected = topology.select(&Criteria::write()).unwrap();
    assert_ne!(selected.address(), old.address());
    let description = topology.description();
    let lost = description.server(old.address()).unwrap();
    assert_ne!(lost.server_type, ServerType::RsPrimary);
}

#[test]
fn l_42_selections_are_distributed_over_all_routers() {
    let cluster = Builder::sharded(3).start().unwrap();
    let mut topology = start(cluster.uri(), "localThresholdMS=10000");
    let mut seen: Vec<String> = (0..200)
        .map(|_| topology.select(&Criteria::write()).unwrap())
        .map(|selected| selected.address().to_string())
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3);
    assert_eq!(
        topology.description().topology_type(),
        TopologyType::Sharded
    );
}

#[test]
fn h_14_a_load_balancer_gets_one_connection_and_no_checks() {
    let cluster = Builder::load_balanced(2).start().unwrap();
    let mut topology = start(cluster.uri(), "");
    let selected = topology.select(&Criteria::write()).unwrap();
    assert_eq!(cluster.connections().unwrap(), 0);
    for _ in 0..3 {
        let ping = doc! { "ping": 1, "$db": "admin" };
        assert!(run(&mut topology, &selected, &ping).is_some());
    }
    assert_eq!(cluster.connections().unwrap(), 1);
    let server = selected.id();
    let channel = topology.inner().channel(server).unwrap();
    assert!(channel.service_id().is_some());
}

#[test]
fn the_events_of_requested_checks_and_of_the_end_have_the_id_of_the_topology() {
    let set = ReplicaSet::start(3).unwrap();
    let (sink, mut events) = unbounded();
    let builder = BlockingTopology::builder(set.uri()).unwrap().sink(sink);
    let mut topology = builder.blocking().unwrap();
    topology.scan();
    let description = topology.description();
    let ids: Vec<_> = description.servers().iter().map(|it| it.id).collect();
    let chosen = description.primary().unwrap().id;
    topology.check(chosen);
    let id = topology.id();
    topology.close();
    let error = topology.select(&Criteria::write()).unwrap_err();
    assert!(matches!(error, SelectionError::Closed), "{error}");
    let events: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
    assert!(events.iter().all(|event| event.topology == id));
    for server in ids {
        let is_check = |kind: &EventKind| {
            matches!(kind, EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
                if heartbeat.server == server)
        };
        let checks = events.iter().filter(|event| is_check(&event.kind)).count();
        assert_eq!(checks, if server == chosen { 2 } else { 1 });
    }
    let last = events.last().map(|event| &event.kind);
    assert!(matches!(last, Some(EventKind::TopologyClosed)), "{last:?}");
}

#[test]
fn l_66_an_unreachable_server_fails_the_selection_after_one_scan_with_the_reason() {
    let server = Builder::standalone().start().unwrap();
    let uri = server.uri().to_owned();
    drop(server);
    let mut topology = start(&uri, "");
    let error = topology.select(&Criteria::write()).unwrap_err();
    let SelectionError::Timeout(timeout) = error else {
        panic!("{error}");
    };
    assert_eq!(timeout.bound, Bound::TryOnce);
    let last = timeout.failures[0].last.as_ref().unwrap();
    assert_eq!(last.error.kind, ErrorKind::Network);
    assert!(!timeout.diagnoses.is_empty());
}

#[test]
fn j_31_j_35_every_heartbeat_ends_and_none_is_awaited() {
    let set = ReplicaSet::start(3).unwrap();
    let (sink, mut events) = unbounded();
    let builder = BlockingTopology::builder(set.uri()).unwrap().sink(sink);
    let mut topology = builder.blocking().unwrap();
    write(&mut topology);
    topology.scan();
    drop(topology);
    let (mut started, mut ended, mut last) = (0, 0, None);
    while let Some(event) = events.try_next() {
        match &event.kind {
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                started += 1;
                assert!(!heartbeat.awaited);
            }
            EventKind::ServerHeartbeatSucceeded { .. } => ended += 1,
            _ => {}
        }
        last = Some(event.kind);
    }
    assert_eq!((started, ended), (6, 6));
    assert_eq!(last, Some(EventKind::TopologyClosed));
}

#[test]
fn blocking_mode_works_within_an_executor() {
    let set = ReplicaSet::start(1).unwrap();
    let uri = set.uri().to_owned();
    let selected = futures::executor::block_on(async move {
        start(&uri, "")
            .select(&Criteria::write())
            .map(|it| it.address().clone())
    });
    assert_eq!(selected.unwrap().to_string(), primary(&set));
}
