use std::{sync::Arc, time::Duration};

use bson::doc;
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    ids::{ObjectId, ServerId},
    server::{Rtt, ServerDescription, ServerType},
    time::Instant,
    topology::{DepartureReason, TopologyDescription, TopologyType},
};

use super::{Bounds, Fact, FactSink, Facts, Loss};
use crate::{
    sink::EventSink,
    test_support::{TOPOLOGY, address, at, description, heartbeat, opening, succeeded},
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

    fn close(&mut self) -> Vec<Fact> {
        let previous = std::mem::take(&mut self.topology).into();
        let new = std::sync::Arc::<TopologyDescription>::default();
        self.push(EventKind::TopologyDescriptionChanged { previous, new })
    }

    fn answered(&mut self, server: u64) -> &mut Self {
        assert_eq!(self.push(succeeded(server, &doc! {})), []);
        self
    }

    /// Begins a streaming check of the primary: the server replies at the next change.
    fn streams(&mut self) -> &mut Self {
        let mut heartbeat = heartbeat(1);
        heartbeat.awaited = true;
        assert_eq!(self.push(EventKind::ServerHeartbeatStarted(heartbeat)), []);
        self
    }

    /// Measures a round trip to the primary.
    fn pong(&mut self) -> &mut Self {
        let (server, rtt) = (ServerId::from_u64(1), Rtt::default());
        let pong = EventKind::RttMeasured { server, address: address("host1"), rtt };
        assert_eq!(self.push(pong), []);
        self
    }

    /// Checks the bounds of the total time without a writable server up to `now`.
    #[track_caller]
    fn check_without(&self, now: u64, at_least: u64, at_most: u64) {
        let without = self.facts.time_without_writes(at(now));
        let [at_least, at_most] = [at_least, at_most].map(Duration::from_millis);
        assert_eq!(without, Bounds { at_least, at_most });
    }

    /// Emits the events of one reply or error: first the events of the changed servers, then the
    /// event of the topology.
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
        assert_eq!(
            shown(&facts),
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
fn closing_a_topology_is_no_outage() {
    let mut script = Script::replica_set();
    let closed = script.at(1000).close();
    assert_eq!(
        shown(&closed),
        ["ReplicaSetWithPrimary -> Unknown after 900.000ms", "primary host1:27017 -> none"]
    );
    assert_eq!((script.facts.is_writable(), script.facts.outage()), (false, None));
    script.check_without(9000, 0, 0);
}

#[test]
fn closing_a_topology_ends_its_outage() {
    let mut script = Script::replica_set();
    script.at(1000).answered(1);
    script.at(1500).change(TopologyType::ReplicaSetNoPrimary, &[unreachable(1)]);
    script.at(2500).close();
    assert_eq!(script.facts.outage(), None);
    script.check_without(9000, 1000, 1500);
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
            "primary host1:27017 lost: network error at hello: reset; last seen writable 500.000ms \
             before",
        ]
    );
    assert!(!script.facts.is_writable());
    script.check_without(1600, 100, 600);

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
        "failover from host1:27017 to host2:27017, 500.000ms to 1.000s without primary: \
         network error at hello: reset; last seen writable 500.000ms before"
    );
    assert_eq!(script.facts.last_failover(), Some(failover));
    assert_eq!(script.facts.outage(), None);
    assert_eq!(script.facts.primary(), Some(&address("host2")));
    script.check_without(9000, 500, 1000);
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
    assert_eq!(outage.earliest(), at(1000), "it was asked, so it may have been so for some time");
    assert!(!lost.iter().any(|fact| matches!(fact, Fact::ServerLost { .. })));
}

#[test]
fn the_time_without_a_primary_is_known_if_the_old_one_streamed_and_its_connection_broke() {
    let check = |kind, age: u64, at_most: u64| {
        let mut script = Script::replica_set();
        script.at(1000).answered(1).streams().at(2000).pong().at(2000 + age);
        let mut lost = unreachable(1);
        lost.error = Some(Error::new(kind, Stage::Hello, "lost"));
        script.change(TopologyType::ReplicaSetNoPrimary, &[lost]);
        script.at(2500 + age).change(TopologyType::ReplicaSetWithPrimary, &[primary(2)]);
        script.check_without(99_000, 500, at_most);
    };
    check(ErrorKind::Network, 10_900, 500);
    check(ErrorKind::Command, 10_900, 500);
    // The measured round trip is the last proof that the server was writable.
    check(ErrorKind::Timeout, 10_900, 11_400);
    check(ErrorKind::Network, 11_100, 11_600);
}

/// Returns the script of a streaming set in which another member answers as primary at 15 s, 9 s
/// after the old primary's last answer.
fn replaced() -> Script {
    replaced_after(|_| (), "up to 9.000s")
}

fn replaced_after(before: impl FnOnce(&mut Script), without: &str) -> Script {
    let mut script = Script::replica_set();
    script.at(1000).answered(1).streams().at(6000).pong();
    before(&mut script);
    let mut stale = unreachable(1);
    stale.error = Some(Error::new(ErrorKind::StalePrimary, Stage::Hello, "stale"));
    let facts = script.at(15_000).change(TopologyType::ReplicaSetWithPrimary, &[primary(2), stale]);
    assert_eq!(
        shown(&facts)[2..],
        [format!(
            "failover from host1:27017 to host2:27017, {without} without primary: replaced by \
             host2:27017; last seen writable 9.000s before"
        )]
    );
    script
}

#[test]
fn a_suspected_primary_that_does_not_answer_was_lost_at_the_suspicion_at_the_latest() {
    let suspected = |script: &mut Script| {
        let (server, silence) = (ServerId::from_u64(1), Duration::from_secs(5));
        let kind = EventKind::ServerSuspected { server, address: address("host1"), silence };
        assert_eq!(script.at(11_000).push(kind), []);
    };
    replaced_after(suspected, "4.000s to 9.000s").check_without(99_000, 4_000, 9_000);
    let cleared = |script: &mut Script| {
        suspected(script);
        let (server, duration) = (ServerId::from_u64(1), Duration::from_secs(1));
        let address = address("host1");
        let kind = EventKind::ServerSuspicionEnded { server, address, duration, answered: true };
        assert_eq!(script.at(12_000).push(kind), []);
    };
    replaced_after(cleared, "up to 9.000s");
}

#[test]
fn a_primary_that_is_replaced_in_silence_may_have_been_lost_since_its_last_answer() {
    let mut script = replaced();
    script.check_without(16_000, 0, 0);
    script.check_without(16_001, 0, 9000);
    // The old primary returns as a secondary, which does not reveal when it stepped down.
    let back = description(1, ServerType::RsSecondary);
    let facts = script.at(16_001).change(TopologyType::ReplicaSetWithPrimary, &[back]);
    assert_eq!(facts, []);
    script.at(20_000).change(TopologyType::ReplicaSetNoPrimary, &[unreachable(2)]);
    script.at(20_100).change(TopologyType::ReplicaSetWithPrimary, &[primary(2)]);
    script.check_without(30_000, 100, 14_100);
}

#[test]
fn a_primary_that_steps_down_may_answer_after_the_new_one() {
    let mut script = replaced();
    let back = description(1, ServerType::RsSecondary);
    let facts = script.at(15_003).change(TopologyType::ReplicaSetWithPrimary, &[back]);
    assert_eq!(
        shown(&facts),
        [
            "explained: failover from host1:27017 to host2:27017, 0.000ns without primary: it stepped \
          down and is RSSecondary now; last seen writable 9.000s before"
        ]
    );
    let outage = &script.facts.last_failover().unwrap().outage;
    assert_eq!(outage.loss, Loss::SteppedDown(ServerType::RsSecondary));
    assert_eq!(outage.earliest(), at(15_000));
    script.check_without(30_000, 0, 0);
    // The failover remains explained, whatever the old primary does next.
    let again = script.at(15_004).change(TopologyType::ReplicaSetWithPrimary, &[unreachable(1)]);
    assert_eq!(again.len(), 1, "{again:?}");
}

#[test]
fn the_first_primary_is_not_a_failover() {
    let script = Script::replica_set();
    assert_eq!(script.facts.last_failover(), None);
    script.check_without(5000, 0, 0);
}

#[test]
fn losses_of_a_server_are_counted_until_it_leaves_the_topology() {
    let mut script = Script::replica_set();
    for losses in 1..=3 {
        script.change(TopologyType::ReplicaSetWithPrimary, &[unreachable(2)]);
        // A second failed check in a row does not count as a second loss.
        script.change(TopologyType::ReplicaSetWithPrimary, &[unreachable(2)]);
        assert_eq!(script.facts.server(&address("host2")).unwrap().losses, losses);
        let back = description(2, ServerType::RsSecondary);
        script.change(TopologyType::ReplicaSetWithPrimary, &[back]);
    }
    assert_eq!(script.facts.server(&address("host3")).unwrap().losses, 0);
    assert_eq!(script.facts.last_failover(), None, "the primary has stayed");
    script.push(EventKind::ServerClosed {
        server: ServerId::from_u64(2),
        address: address("host2"),
        reason: DepartureReason::HostsChanged,
    });
    assert_eq!(script.facts.server(&address("host2")), None);
    assert_eq!(script.facts.servers().count(), 2);
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
    assert_eq!(
        shown(&lost)[1..],
        ["no writable server: network error at hello: reset; last seen writable 300.000ms before"]
    );
    let found = script.at(700).change(TopologyType::Sharded, &[description(1, ServerType::Mongos)]);
    assert_eq!(
        shown(&found),
        ["failover, 200.000ms to 500.000ms without primary: network error at hello: \
          reset; last seen writable 300.000ms before"]
    );
}

#[test]
fn a_sink_passes_facts_on_and_keeps_them() {
    let (sender, facts) = std::sync::mpsc::channel();
    let sink = FactSink::new(move |fact: &Fact| sender.send(fact.clone()).unwrap());
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
    assert_eq!(sink.facts().topology_type, TopologyType::Single);
    drop(sink);
    let facts: Vec<Fact> = facts.iter().collect();
    assert_eq!(shown(&facts), ["Unknown -> Single after 0.000ns"]);
}
