//! What follows from the loss of a server, whoever notices it, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{sync::Arc, time::Duration};

use bson::Document;
use sdam::{snapshot::Snapshot, topology::Topology};
use sdam_core::{
    address::ServerAddress,
    event::EventKind,
    ids::{Generation, ServerId},
    server::{ServerDescription, ServerType},
};
use sdam_events::{
    channel::{EventStream, unbounded},
    sink::Interest,
};
use sdam_sim::{
    Action, Blueprint, MemberId,
    action::{FailCommand, Target},
    config::SetConfig,
    runtime::Sim,
};

const LONG: Duration = Duration::from_secs(120);

/// A set of three that is completely known.
struct World {
    sim: Sim,
    topology: Topology,
    events: EventStream,
}

impl World {
    fn start(options: &str) -> Self {
        let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
        let blueprint = Blueprint::replica_set(SetConfig::new("rs", hosts));
        let sim = Sim::new(1, &blueprint);
        sim.run_for(Duration::from_secs(20));
        let (sink, events) = unbounded();
        let sink = sink.interested_in(Interest::SDAM.union(Interest::POOLS));
        let topology = Topology::builder(&format!("mongodb://a,b,c/?replicaSet=rs&{options}"))
            .unwrap()
            .sink(sink)
            .start(sim.runtime())
            .unwrap();
        let this = Self {
            sim,
            topology,
            events,
        };
        this.wait_for(|snapshot| {
            let servers = snapshot.description().servers();
            servers
                .iter()
                .all(|server| server.server_type.is_available())
        });
        this
    }

    fn wait_for(&self, met: impl Fn(&Snapshot) -> bool) {
        let met = self.topology.wait_for(|now| met(now).then_some(()), LONG);
        assert!(self.sim.block_on(met).is_some(), "in time");
    }

    fn server(&self, id: ServerId) -> Arc<ServerDescription> {
        let snapshot = self.topology.snapshot();
        Arc::clone(snapshot.description().server_by_id(id).unwrap())
    }

    /// A secondary: as the topology knows it, and as the deployment does.
    fn secondary(&self) -> (ServerId, MemberId) {
        let snapshot = self.topology.snapshot();
        let mut servers = snapshot.description().servers().iter();
        let of_type =
            |server: &&Arc<ServerDescription>| server.server_type == ServerType::RsSecondary;
        let server = servers.find(of_type).unwrap();
        let status = self.sim.status();
        let mut members = status.members.iter();
        let member = members.find(|member| member.address == server.address);
        (server.id, member.unwrap().id)
    }

    /// What a server has answered last.
    fn last_reply(&mut self, server: ServerId) -> Document {
        let replies =
            std::iter::from_fn(|| self.events.try_next()).filter_map(|event| match event.kind {
                EventKind::ServerHeartbeatSucceeded {
                    heartbeat, reply, ..
                } if heartbeat.server == server => Some(reply),
                _ => None,
            });
        Document::from_reader(&*replies.last().unwrap()).unwrap()
    }
}

fn versioned(mut reply: Document, ahead: i64) -> Vec<u8> {
    let version = reply.get_document_mut("topologyVersion").unwrap();
    let counter = version.get_i64("counter").unwrap();
    version.insert("counter", counter + ahead);
    reply.to_vec().unwrap()
}

/// F-50: a check that is answered with an error loses its server, though a pooled connection has
/// brought a newer topology version than that of the error.
#[test]
fn an_error_older_than_the_news_of_a_pool_loses_the_server_all_the_same() {
    let mut world = World::start("serverMonitoringMode=poll");
    let (server, member) = world.secondary();
    world.sim.run_for(Duration::from_millis(1));
    let reply = versioned(world.last_reply(server), 1000);
    let generation = Generation::FIRST;
    world
        .topology
        .handle_handshake(server, generation, &reply)
        .unwrap();
    let mut refusal = FailCommand::default();
    refusal.commands = ["hello", "isMaster"].map(str::to_owned).into();
    refusal.error_code = Some(11602);
    let target = Target::Member(member);
    world
        .sim
        .apply(&Action::FailPoint(target, Some(refusal)))
        .unwrap();
    world.sim.run_for(Duration::from_secs(11));
    let error = world.server(server).error.clone().unwrap();
    assert_eq!(error.code, Some(11602));
    assert!(error.topology_version.is_some(), "an older one");
    let cleared = std::iter::from_fn(|| world.events.try_next()).any(
        |event| matches!(event.kind, EventKind::PoolCleared { server: own, .. } if own == server),
    );
    assert!(cleared);
}
