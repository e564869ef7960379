//! Clients that discover simulated deployments from seeds.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bson::rawdoc;
use futures::future::BoxFuture;
use sdam::{Criteria, Snapshot, TopologyBuilder, client::Command};
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    options::Options,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_sim::{
    Blueprint, MemberId,
    config::SetConfig,
    runtime::{Certificate, Sim},
    serve::Listen,
};
use sdam_transport::{
    async_trait,
    clock::Clock,
    connect::{Connection, Transport},
    layers::Guards,
    runtime::Runtime,
};

use super::{File, compare, zone};
use crate::{
    host::{Host, TestDeployment},
    requirement::Kind,
};

/// The maximum virtual time until all servers are discovered.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the replica set.
const SET: &str = "repl0";

/// Discovers the servers from the seeds in `options`, and sends a ping.
pub(super) fn discover(
    host: &Host,
    kind: Kind,
    options: Options,
    file: &File,
) -> Result<(), String> {
    let deployment = (host.discover)(kind, &options)?;
    let client = TopologyBuilder::new(options).client(deployment.target().runtime().clone());
    let client = client.map_err(|error| error.to_string())?;
    let outcome = deployment.block_on(async {
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
        if file.ping != Some(false) {
            let ping = rawdoc! { "ping": 1 };
            let reply = client.run(&Command::new("admin", ping.as_bytes())).await;
            reply.map_err(|error| error.to_string())?;
        }
        client.close().await;
        Ok(())
    });
    deployment.check_messages()?;
    outcome.ok_or("the host has not run it")?
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
        if file.ping != Some(false) {
            let server = topology.select(&Criteria::primary()).await;
            let server = server.map_err(|error| error.to_string())?;
            let ping = rawdoc! { "ping": 1, "$db": "admin" };
            let reply = topology.run_command(server.id(), ping.as_bytes(), None).await;
            reply.map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

/// Starts a deployment in a simulation.
pub fn simulate(kind: Kind, options: &Options) -> TestDeployment {
    let sim = start(kind, options);
    let runtime = sim.runtime();
    TestDeployment::new("", None, runtime, move |future| sim.block_on(future), ())
}

/// Starts a deployment on loopback TCP. Its clock is `clock`.
///
/// # Errors
///
/// If the deployment cannot be started.
pub fn serve(
    kind: Kind,
    mut runtime: Runtime,
    clock: Arc<dyn Clock>,
    block_on: impl Fn(BoxFuture<'_, ()>) + 'static,
) -> Result<TestDeployment, String> {
    let (blueprint, host, port) = match kind {
        Kind::Single | Kind::ReplicaSet => {
            let set = Blueprint::replica_set(3).configure(|config| config.name = SET.into());
            (set, "localhost", 27017)
        }
        Kind::Sharded => (Blueprint::sharded(2), zone::HOST, 27017),
        Kind::LoadBalanced => (Blueprint::load_balanced(1), zone::HOST, 8000),
    };
    let listen = Listen::new().name(move |index, _| ServerAddress::new(host, port + index));
    let server = listen.clock(clock).serve(blueprint).map_err(|error| error.to_string())?;
    runtime.backend.transport =
        Arc::new(Named { transport: runtime.backend.transport, places: server.places().into() });
    Ok(TestDeployment::new("", None, runtime, block_on, server))
}

/// A transport to servers on loopback. It chooses the server by port and ignores the host name. It
/// counts as encrypted, like a connection through a TLS tunnel.
#[derive(Debug)]
struct Named {
    transport: Arc<dyn Transport>,
    /// The name of each server, and the address at which it listens.
    places: Box<[(ServerAddress, ServerAddress)]>,
}

#[async_trait]
impl Transport for Named {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        let place = self.places.iter().find(|(name, _)| name.port() == target.port());
        let refusal = || Error::network(Stage::Connect, format!("nothing listens on {target}"));
        let (_, place) = place.ok_or_else(refusal)?;
        self.transport.connect(place, deadline).await
    }

    fn guards(&self) -> Guards {
        self.transport.guards().with_tls()
    }
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
        Kind::Single | Kind::ReplicaSet => Blueprint::replica_set(SetConfig::new(SET, members())),
        Kind::Sharded => Blueprint::sharded(2).at(hosts(zone::HOST, &[27017, 27018])),
        Kind::LoadBalanced => Blueprint::load_balanced(1).at(hosts(zone::HOST, &[8000])),
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
