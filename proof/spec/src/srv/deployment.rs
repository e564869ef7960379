//! Clients that discover simulated deployments from seeds.

use std::{collections::BTreeSet, time::Duration};

use bson::rawdoc;
use sdam::{
    Criteria, Snapshot, TopologyBuilder,
    client::{ClientBuilder, Command},
};
use sdam_core::{address::ServerAddress, options::Options, topology::TopologyDescription};
use sdam_sim::{
    Blueprint, MemberId,
    config::SetConfig,
    runtime::{Certificate, Sim},
};

use super::{File, compare, zone};

/// The maximum virtual time until all servers are discovered.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kind of deployment that a folder's files require.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Three members.
    ReplicaSet,
    /// Two mongoses.
    Sharded,
    /// One load balancer.
    LoadBalanced,
}

/// Discovers the servers from the seeds in `options`, and sends a ping.
pub(super) fn discover(kind: Kind, options: Options, file: &File) -> Result<(), String> {
    let sim = start(kind, &options);
    let builder = ClientBuilder::new(TopologyBuilder::new(options));
    let client = builder.start(sim.runtime()).map_err(|error| error.to_string())?;
    sim.block_on(async {
        let complete = |snapshot: &Snapshot| {
            let description = snapshot.description();
            let known = description.servers().iter();
            let known = known.clone().all(|server| server.server_type.is_available());
            (known && check(description, file).is_ok()).then_some(())
        };
        if client.topology().wait_for(complete, PATIENCE).await.is_none() {
            let snapshot = client.topology().snapshot();
            check(snapshot.description(), file)?;
            return Err(format!("a server is not known: {snapshot:?}"));
        }
        if file.ping {
            let ping = rawdoc! { "ping": 1 };
            let reply = client.run(&Command::new("admin", ping.as_bytes())).await;
            reply.map_err(|error| error.to_string())?;
        }
        client.close().await;
        Ok(())
    })
}

/// Discovers the servers as [`discover`] does, in single-threaded mode.
pub(super) fn scan(kind: Kind, options: Options, file: &File) -> Result<(), String> {
    let sim = start(kind, &options);
    let builder = TopologyBuilder::new(options);
    let topology = builder.scan(sim.runtime().backend);
    let mut topology = topology.map_err(|error| error.to_string())?;
    sim.block_on(async {
        topology.scan().await;
        check(&topology.description(), file)?;
        if file.ping {
            let server = topology.select(&Criteria::primary()).await;
            let server = server.map_err(|error| error.to_string())?;
            let ping = rawdoc! { "ping": 1, "$db": "admin" };
            let reply = topology.run_command(server.id(), ping.as_bytes(), None).await;
            reply.map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

/// Compares the servers of the topology with those in the file.
fn check(description: &TopologyDescription, file: &File) -> Result<(), String> {
    let servers = description.servers().iter();
    let hosts: BTreeSet<_> = servers.map(|server| server.address.to_string()).collect();
    compare("hosts", &hosts, file.hosts.as_deref(), file.num_hosts)
}

/// Starts a deployment of the given kind, with TLS if the client uses it.
fn start(kind: Kind, options: &Options) -> Sim {
    let hosts = |host: &'static str, ports: &'static [u16]| {
        ports.iter().map(move |port| ServerAddress::new(host, *port))
    };
    let members = || hosts("localhost", &[27017, 27018, 27019]);
    let blueprint = match kind {
        Kind::ReplicaSet => Blueprint::replica_set(SetConfig::new("repl0", members())),
        Kind::Sharded => Blueprint::sharded(hosts(zone::HOST, &[27017, 27018])),
        Kind::LoadBalanced => Blueprint::load_balanced(hosts(zone::HOST, &[8000])),
    };
    let sim = Sim::new(1, &blueprint);
    for (number, member) in (0..).zip(members()) {
        let Kind::ReplicaSet = kind else { break };
        // The seeds are alternative names for the members. The configuration of the set does not
        // contain these names.
        let member_id = MemberId(number);
        let names = [member.host(), zone::HOST, zone::SUB_HOST];
        sim.tls().set_certificate(member_id, Certificate::new(names));
        for name in [zone::HOST, zone::SUB_HOST] {
            let other = ServerAddress::new(name, member.port().unwrap_or_default());
            sim.network().forward(other, member_id);
        }
    }
    if options.tls.is_some() {
        sim.tls().require();
    }
    sim
}
