//! The effects of losing a server, in virtual time.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{sync::Arc, time::Duration};

use bson::{Document, doc};
use sdam::{
    ErrorOutcome, ErrorReport, EventKind, Generation, Interest, ServerAddress, ServerDescription,
    ServerId, ServerType, Snapshot, Stage, Topology, discovery::reply,
};
use sdam_events::channel::{EventStream, unbounded};
use sdam_sim::{Blueprint, MemberId, config::SetConfig, runtime::Sim};

const LONG: Duration = Duration::from_secs(120);

/// A replica set of three known members.
struct Harness {
    sim: Sim,
    topology: Topology,
    events: EventStream,
}

impl Harness {
    /// Starts a topology with all members as seeds.
    fn start(options: &str) -> Self {
        let this = Self::start_with_uri(&format!("a,b,c/?replicaSet=rs&{options}"));
        this.wait_for(|snapshot| {
            let servers = snapshot.description().servers();
            servers
                .iter()
                .all(|server| server.server_type.is_available())
        });
        this
    }

    /// Starts a topology with this connection string.
    fn start_with_uri(uri: &str) -> Self {
        let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
        let blueprint = Blueprint::replica_set(SetConfig::new("rs", hosts));
        let sim = Sim::new(1, &blueprint);
        sim.run_for(Duration::from_secs(20));
        let (sink, events) = unbounded();
        let sink = sink.interested_in(Interest::SDAM.union(Interest::POOLS));
        let topology = Topology::builder(&format!("mongodb://{uri}"))
            .unwrap()
            .sink(sink)
            .start(sim.runtime())
            .unwrap();
        Self {
            sim,
            topology,
            events,
        }
    }

    fn wait_for(&self, met: impl Fn(&Snapshot) -> bool) {
        let met = self.topology.wait_for(|now| met(now).then_some(()), LONG);
        assert!(self.sim.block_on(met).is_some(), "not in time");
    }

    fn server(&self, id: ServerId) -> Arc<ServerDescription> {
        let snapshot = self.topology.snapshot();
        Arc::clone(snapshot.description().server_by_id(id).unwrap())
    }

    /// Reports, on a connection of the first generation, an operation's error that the server is no
    /// longer primary.
    fn report_step_down(&self, server: ServerId) -> ErrorOutcome {
        let reply = doc! { "ok": 0, "code": 189, "errmsg": "the primary stepped down" };
        let reply = reply.to_vec().unwrap();
        let error = ErrorReport::new(
            Generation::FIRST,
            reply::error(&reply, Stage::Operation).unwrap(),
        );
        self.topology.handle_error(server, &error)
    }

    /// Returns a secondary's ids in the topology and in the deployment.
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

    /// Returns the last reply of a server.
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

/// F-80: an operation's handshake with a lost server makes it known again, although the monitor
/// receives nothing new on its stream.
#[test]
fn a_pooled_handshake_makes_a_lost_streaming_server_known_again() {
    let mut harness = Harness::start("");
    let (server, _) = harness.secondary();
    harness.sim.run_for(Duration::from_millis(1));
    let reply = versioned(harness.last_reply(server), 0);
    assert_eq!(
        harness.report_step_down(server),
        ErrorOutcome::MarkedUnknown
    );
    assert_eq!(harness.server(server).server_type, ServerType::Unknown);
    harness
        .topology
        .handle_handshake(server, Generation::FIRST, &reply)
        .unwrap();
    let found = harness.server(server);
    assert_eq!(found.server_type, ServerType::RsSecondary);
    assert!(found.rtt.unwrap().average > Duration::ZERO);
}
