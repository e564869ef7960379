use std::{sync::Arc, time::Duration};

use bson::doc;
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    ids::ObjectId,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{DepartureReason, TopologyDescription, TopologyType},
};

use super::{Fact, FactSink, Facts};
use crate::{
    sink::EventSink,
    test_support::{TOPOLOGY, address, at, description, opening, succeeded},
};

const ELECTION: ObjectId = ObjectId::from_bytes([9; 12]);

/// Feeds `Facts` the events that a topology publishes.
#[derive(Default)]
struct Script {
    facts: Facts,
    topology: TopologyDescription,
    now: Instant,
}

impl Script {
    fn at(&mut self, millis: u64) -> &mut Self {
        self.now = at(millis);
        self
    }

    fn push(&mut self, kind: EventKind) -> Vec<Fact> {
        self.facts.observe(&sdam_core::event::Event::new(0, self.now, TOPOLOGY, kind))
    }

    fn answered(&mut self, server: u64) {
        assert_eq!(self.push(succeeded(server, &doc! {})), []);
    }

    /// Emits the events of one reply or error: first the changed servers, then the topology.
    fn change(&mut self, topology_type: TopologyType, changed: &[ServerDescription]) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut servers: Vec<ServerDescription> =
            self.topology.servers().iter().map(|server| (**server).clone()).collect();
        for new in changed {
            let previous = self
                .topology
                .server(&new.address)
                .cloned()
                .unwrap_or_else(|| Arc::new(description(new.id.as_u64(), ServerType::Unknown)));
            let new = Arc::new(new.clone());
            facts.extend(
                self.push(EventKind::ServerDescriptionChanged { previous, new: Arc::clone(&new) }),
            );
            servers.push((*new).clone());
        }
        let new = TopologyDescription::new(topology_type, servers);
        let previous = std::mem::replace(&mut self.topology, new.clone());
        facts.extend(self.push(crate::test_support::topology_changed(&previous, &new)));
        facts
    }

    /// Starts a replica set of three members, the first of which has been primary for 100 ms.
    fn replica_set() -> Self {
        let mut script = Self::default();
        script.push(EventKind::TopologyOpening);
        script.change(TopologyType::ReplicaSetNoPrimary, &[]);
        for server in 1..=3 {
            script.push(opening(server));
        }
        script.at(100).answered(1);
        let facts = script.change(
            TopologyType::ReplicaSetWithPrimary,
            &[
                primary(1),
                description(2, ServerType::RsSecondary),
                description(3, ServerType::RsSecondary),
            ],
        );
        let shown: Vec<String> = facts.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "ReplicaSetNoPrimary -> ReplicaSetWithPrimary after 100.000ms",
                "primary host1:27017 found (election 090909090909090909090909)"
            ]
        );
        script
    }
}

fn primary(server: u64) -> ServerDescription {
    let mut primary = description(server, ServerType::RsPrimary);
    primary.election.election_id = Some(ELECTION);
    primary
}

fn unreachable(server: u64) -> ServerDescription {
    let mut server = description(server, ServerType::Unknown);
    server.error = Some(Error::new(ErrorKind::Network, Stage::Hello, "reset"));
    server
}

fn shown(facts: &[Fact]) -> Vec<String> {
    facts.iter().map(ToString::to_string).collect()
}

#[test]
fn a_failover_lasts_from_the_last_reply_of_the_old_primary_to_the_new_primary() {
    let mut script = Script::replica_set();
    script.at(1000).answered(1);
    let lost = script.at(1500).change(TopologyType::ReplicaSetNoPrimary, &[unreachable(1)]);
    assert_eq!(
        shown(&lost),
        [
            "host1:27017 -> Unknown, loss 1: network error at hello: reset",
            "ReplicaSetWithPrimary -> ReplicaSetNoPrimary after 1.400s",
            "primary host1:27017 -> none",
            "primary host1:27017 lost, last seen 500.000ms before",
        ]
    );
    assert!(!script.facts.is_writable());
    assert_eq!(script.facts.time_without_writes(at(1600)), Duration::from_millis(100));

    // A secondary reports the new primary before the new primary has answered.
    let mut secondary = description(3, ServerType::RsSecondary);
    secondary.primary = Some(address("host2"));
    assert_eq!(script.at(1700).change(TopologyType::ReplicaSetNoPrimary, &[secondary]), []);

    let found = script.at(2000).change(TopologyType::ReplicaSetWithPrimary, &[primary(2)]);
    let Some(Fact::FailoverEnded(failover)) = found.last() else {
        panic!("{found:?}");
    };
    assert_eq!(failover.outage.lost, Some(address("host1")));
    assert_eq!(failover.new, Some(address("host2")));
    assert_eq!(failover.election_id, Some(ELECTION));
    assert_eq!(failover.outage.last_writable, at(1000));
    assert_eq!(failover.outage.noticed, at(1500));
    assert_eq!(failover.outage.successor_named, Some(at(1700)));
    assert_eq!(failover.writable_again, at(2000));
    assert_eq!(
        failover.to_string(),
        "failover from host1:27017 to host2:27017 in 1.000s (detected after 500.000ms, 500.000ms \
         without primary)"
    );
    assert_eq!(script.facts.failovers(), 1);
    assert_eq!(script.facts.last_failover(), Some(failover));
    assert_eq!(script.facts.outage(), None);
    assert_eq!(script.facts.primary(), Some(&address("host2")));
    assert_eq!(script.facts.time_without_writes(at(9000)), Duration::from_millis(500));
}

#[test]
fn the_reply_of_a_primary_that_steps_down_does_not_count_as_writable() {
    let mut script = Script::replica_set();
    script.at(1000).answered(1);
    script.at(1400).answered(1);
    let lost = script
        .change(TopologyType::ReplicaSetNoPrimary, &[description(1, ServerType::RsSecondary)]);
    let Some(Fact::OutageStarted(outage)) = lost.last() else {
        panic!("{lost:?}");
    };
    assert_eq!((outage.last_writable, outage.noticed), (at(1000), at(1400)));
    assert!(!lost.iter().any(|fact| matches!(fact, Fact::ServerLost { .. })));
}

#[test]
fn a_change_of_primary_in_one_step_is_a_failover_without_outage() {
    let mut script = Script::replica_set();
    script.at(1000).answered(1);
    let facts =
        script.at(1200).change(TopologyType::ReplicaSetWithPrimary, &[primary(2), unreachable(1)]);
    let Some(Fact::FailoverEnded(failover)) = facts.last() else {
        panic!("{facts:?}");
    };
    assert_eq!(failover.without_primary(), Duration::ZERO);
    assert_eq!(failover.detection(), Duration::from_millis(200));
    assert_eq!(script.facts.time_without_writes(at(1300)), Duration::ZERO);
}

#[test]
fn the_first_primary_is_not_a_failover() {
    let script = Script::replica_set();
    assert_eq!(script.facts.failovers(), 0);
    assert_eq!(script.facts.time_without_writes(at(5000)), Duration::ZERO);
}

#[test]
fn losses_of_a_server_are_counted_until_it_leaves_the_topology() {
    let mut script = Script::replica_set();
    for losses in 1..=3 {
        script.change(TopologyType::ReplicaSetWithPrimary, &[unreachable(2)]);
        // Another failed check is not another loss.
        script.change(TopologyType::ReplicaSetWithPrimary, &[unreachable(2)]);
        assert_eq!(script.facts.server(&address("host2")).unwrap().losses, losses);
        let back = description(2, ServerType::RsSecondary);
        script.change(TopologyType::ReplicaSetWithPrimary, &[back]);
    }
    assert_eq!(script.facts.server(&address("host3")).unwrap().losses, 0);
    script.push(EventKind::ServerClosed {
        server: sdam_core::ids::ServerId::from_u64(2),
        address: address("host2"),
        reason: DepartureReason::HostsChanged,
    });
    assert_eq!(script.facts.server(&address("host2")), None);
    assert_eq!(script.facts.servers().count(), 2);
}

#[test]
fn the_time_in_each_topology_type_is_summed() {
    let mut script = Script::replica_set();
    script.at(1100).change(TopologyType::ReplicaSetNoPrimary, &[unreachable(1)]);
    script.at(1300).change(TopologyType::ReplicaSetWithPrimary, &[primary(2)]);
    let time = |topology_type| script.facts.time_in(topology_type, at(2000));
    assert_eq!(time(TopologyType::ReplicaSetNoPrimary), Duration::from_millis(300));
    assert_eq!(time(TopologyType::ReplicaSetWithPrimary), Duration::from_millis(1700));
    assert_eq!(time(TopologyType::Sharded), Duration::ZERO);
}

#[test]
fn a_sharded_topology_has_an_outage_when_every_router_is_lost() {
    let mut script = Script::default();
    script.push(EventKind::TopologyOpening);
    script.push(opening(1));
    script.at(100).answered(1);
    script.change(TopologyType::Sharded, &[description(1, ServerType::Mongos)]);
    script.at(200).answered(1);
    let lost = script.at(500).change(TopologyType::Sharded, &[unreachable(1)]);
    assert_eq!(shown(&lost)[1..], ["no writable server, last seen 300.000ms before"]);
    let found = script.at(700).change(TopologyType::Sharded, &[description(1, ServerType::Mongos)]);
    assert_eq!(
        shown(&found),
        ["failover in 500.000ms (detected after 300.000ms, 200.000ms without primary)"]
    );
}

#[test]
fn a_sink_passes_facts_on_and_keeps_them() {
    let (sender, facts) = std::sync::mpsc::channel();
    let sink = FactSink::new(move |fact: &Fact| sender.send(fact.clone()).unwrap());
    let mut script = Script::default();
    script.at(5);
    let events = [
        EventKind::TopologyOpening,
        opening(1),
        crate::test_support::topology_changed(
            &TopologyDescription::default(),
            &TopologyDescription::new(TopologyType::Single, [description(1, ServerType::Unknown)]),
        ),
    ];
    for kind in events {
        sink.emit(&crate::test_support::event(kind));
    }
    assert_eq!(sink.facts().topology_type(), TopologyType::Single);
    drop(sink);
    let facts: Vec<Fact> = facts.iter().collect();
    assert_eq!(shown(&facts), ["Unknown -> Single after 0.000ns"]);
}
