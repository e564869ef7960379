//! Measures how the topology machine handles a reply that changes the description, or does not.
//!
//! A reader holds the previous description, like the engine's snapshot, so the figures include
//! dropping it.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BatchSize, Criterion};
use sdam_core::{
    address::ServerAddress,
    hello::Hello,
    ids::{ElectionTuple, ObjectId, ServerId, TopologyVersion},
    machine::{Effect, Input, TopologyMachine},
    options::Options,
    server::{Rtt, ServerType, WireVersions},
    time::Instant,
    topology::TopologyDescription,
};

/// A fully discovered deployment, and the description that a reader holds.
struct Deployment {
    machine: TopologyMachine,
    servers: Vec<(ServerId, Hello)>,
    snapshot: Arc<TopologyDescription>,
    now: u64,
}

impl Deployment {
    fn replica_set(size: u16) -> Self {
        let hosts: Vec<_> =
            (0..size).map(|index| ServerAddress::new("db.lan", 20_000 + index)).collect();
        Self::new(&hosts, |index| {
            let mut hello =
                member(if index == 0 { ServerType::RsPrimary } else { ServerType::RsSecondary });
            hello.set_name = Some("rs0".into());
            hello.me = hosts.get(index).cloned();
            hello.primary = hosts.first().cloned();
            hello.hosts = hosts.clone().into();
            hello.hosts.sort();
            if index == 0 {
                hello.election = ElectionTuple {
                    election_id: Some(ObjectId::from_bytes([7; 12])),
                    set_version: Some(1),
                };
            }
            hello
        })
    }

    fn sharded(size: u16) -> Self {
        let hosts: Vec<_> =
            (0..size).map(|index| ServerAddress::new("db.lan", 20_000 + index)).collect();
        Self::new(&hosts, |_| member(ServerType::Mongos))
    }

    fn new(hosts: &[ServerAddress], hello: impl Fn(usize) -> Hello) -> Self {
        let mut options = Options::new(hosts.to_vec());
        options.max_servers = hosts.len();
        let machine = TopologyMachine::new(&options);
        let mut deployment =
            Self { machine, servers: Vec::new(), snapshot: Arc::default(), now: 0 };
        deployment.handle(Input::Open);
        for (index, address) in hosts.iter().enumerate() {
            let server = deployment.snapshot.server(address).map(|server| server.id);
            let Some(server) = server else { continue };
            deployment.servers.push((server, hello(index)));
            let hello = hello(index);
            deployment.check(server, hello);
        }
        assert_eq!(deployment.snapshot.servers().len(), hosts.len());
        deployment
    }

    fn check(&mut self, server: ServerId, hello: Hello) {
        let rtt = Some(Rtt { average: Duration::from_millis(1), ..Rtt::default() });
        self.handle(Input::Checked { server, outcome: Ok(hello), rtt });
    }

    fn handle(&mut self, input: Input<'_>) {
        self.now += 1;
        for effect in self.machine.handle(Instant::from_millis(self.now), input) {
            if let Effect::Publish(description) = effect {
                self.snapshot = description;
            } else {
                black_box(effect);
            }
        }
    }

    /// Returns the reply of the last server, which is not the primary, with this topology version.
    fn reply(&self, version: i64) -> (ServerId, Hello) {
        let (server, mut hello) = self.servers.last().cloned().unwrap_or_else(|| unreachable!());
        hello.topology_version =
            Some(TopologyVersion { process_id: ObjectId::default(), counter: version });
        (server, hello)
    }
}

fn member(server_type: ServerType) -> Hello {
    let mut hello = Hello::default();
    hello.server_type = server_type;
    hello.wire_versions = WireVersions { min: 0, max: 17 };
    hello.logical_session_timeout_minutes = Some(30);
    hello
}

fn machine(criterion: &mut Criterion) {
    let deployments = [
        ("3_members", Deployment::replica_set(3)),
        ("50_members", Deployment::replica_set(50)),
        ("1000_mongos", Deployment::sharded(1000)),
    ];
    for (name, mut deployment) in deployments {
        let (server, same) = deployment.reply(0);
        criterion.bench_function(&format!("machine/unchanged/{name}"), |bencher| {
            bencher.iter_batched(
                || same.clone(),
                |hello| deployment.check(server, hello),
                BatchSize::SmallInput,
            );
        });
        let mut version = 1;
        criterion.bench_function(&format!("machine/changed/{name}"), |bencher| {
            let other = same.clone();
            bencher.iter_batched(
                || {
                    version += 1;
                    let mut hello = other.clone();
                    hello.topology_version =
                        Some(TopologyVersion { process_id: ObjectId::default(), counter: version });
                    hello
                },
                |hello| deployment.check(server, hello),
                BatchSize::SmallInput,
            );
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    machine(&mut criterion);
    criterion.final_summary();
}
