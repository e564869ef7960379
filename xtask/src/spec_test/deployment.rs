//! Simulated deployments for files that need a complete deployment.

use std::sync::Arc;

use futures::future::BoxFuture;
use sdam_core::address::ServerAddress;
use sdam_sim::{Blueprint, ServerVersion, Sim, User, serve::Listen};
use sdam_spec::{
    host::TestDeployment,
    requirement::{Environment, Kind},
};
use sdam_testkit::ManualClock;
use sdam_transport::runtime::Runtime;

/// The user name for deployments with authentication.
const USER: &str = "ada";
const PASSWORD: &str = "lovelace";

/// The releases of the servers in simulations. There can be many of them, because waiting takes no
/// real time in a simulation.
const RELEASES: &[ServerVersion] = ServerVersion::SERIES.split_at(2).1;

/// Returns the environments on loopback TCP. Their releases are the newest release, a release
/// without streaming, and a release in between, because neither of the other two supports a certain
/// command.
pub(super) fn served() -> Vec<Environment> {
    let mut served = environments(&[ServerVersion::V4_2, ServerVersion::V8_0]);
    served.push(Environment {
        kind: Kind::Single,
        release: ServerVersion::V6_0.numbers().map(i32::cast_unsigned),
        authentication: false,
    });
    served
}

/// Returns the environments of simulated deployments.
pub(super) fn simulated() -> Vec<Environment> {
    environments(RELEASES)
}

/// Returns an environment for every kind of deployment and every release, with and without
/// authentication.
fn environments(releases: &[ServerVersion]) -> Vec<Environment> {
    let mut environments = Vec::new();
    for &kind in Kind::ALL {
        for release in releases {
            if kind == Kind::LoadBalanced && !release.supports_load_balancers() {
                continue;
            }
            environments.extend([false, true].map(|authentication| Environment {
                kind,
                release: release.numbers().map(i32::cast_unsigned),
                authentication,
            }));
        }
    }
    environments
}

/// Returns `blueprint` with the release and the user of `environment`.
fn fitted(blueprint: Blueprint, environment: &Environment) -> Result<Blueprint, String> {
    let mut versions = ServerVersion::SERIES.into_iter();
    let version = versions
        .find(|version| version.numbers().map(i32::cast_unsigned) == environment.release)
        .ok_or_else(|| format!("{environment} cannot be simulated"))?;
    let blueprint = blueprint.version(version);
    if environment.authentication {
        return Ok(blueprint.user(User::new(USER, PASSWORD)));
    }
    Ok(blueprint)
}

/// Starts a deployment on loopback TCP, whose time is that of `clock`.
pub(super) fn serve(
    environment: &Environment,
    runtime: Runtime,
    clock: &ManualClock,
    block_on: impl Fn(BoxFuture<'_, ()>) + 'static,
) -> Result<TestDeployment, String> {
    let blueprint = match environment.kind {
        Kind::Single => Blueprint::standalone(),
        Kind::ReplicaSet => Blueprint::replica_set(3),
        Kind::Sharded => Blueprint::sharded(2),
        Kind::LoadBalanced => Blueprint::load_balanced(2),
    };
    let start = |blueprint: Blueprint| {
        let listen = Listen::new().clock(Arc::new(clock.clone()));
        let server = listen.serve(fitted(blueprint, environment)?);
        let server = server.map_err(|error| error.to_string())?;
        Ok::<_, String>((connection_string(server.uri(), environment), server))
    };
    let (uri, server) = start(blueprint)?;
    if environment.kind != Kind::LoadBalanced {
        return Ok(TestDeployment::new(uri, None, runtime, block_on, server));
    }
    // A load balancer has one port, so the deployment with a single mongos is separate.
    let (single_uri, single) = start(Blueprint::load_balanced(1))?;
    Ok(TestDeployment::new(uri, Some(single_uri), runtime, block_on, (server, single)))
}

/// Starts a deployment in a simulation, where time passes only while all tasks wait.
pub(super) fn simulate(environment: &Environment, seed: u64) -> Result<TestDeployment, String> {
    let hosts = |count: u16| (0..count).map(|port| ServerAddress::new("server", 27017 + port));
    let blueprint = match environment.kind {
        Kind::Single => Blueprint::standalone().at(hosts(1)),
        Kind::ReplicaSet => Blueprint::replica_set(3).at(hosts(3)),
        Kind::Sharded => Blueprint::sharded(2).at(hosts(2)),
        // One load balancer has a single mongos behind it, and the other one has two.
        Kind::LoadBalanced => Blueprint::load_balanced(3).at(hosts(1).chain(hosts(2))),
    };
    let sim = Sim::new(seed, &fitted(blueprint, environment)?);
    let runtime = sim.runtime();
    let uri = connection_string(&sim.uri(), environment);
    let block_on = move |future: BoxFuture<'_, ()>| sim.block_on(future);
    if environment.kind != Kind::LoadBalanced {
        return Ok(TestDeployment::new(uri, None, runtime, block_on, ()));
    }
    let balancer = |port| {
        let uri = format!("mongodb://server:{port}/?loadBalanced=true");
        connection_string(&uri, environment)
    };
    let single = Some(balancer(27018));
    Ok(TestDeployment::new(balancer(27017), single, runtime, block_on, ()))
}

/// Returns the connection string for the clients of tests. Clients must detect themselves that a
/// server is standalone, so `directConnection` is removed.
fn connection_string(uri: &str, environment: &Environment) -> String {
    let uri = uri.replace("?directConnection=true", "");
    if environment.authentication {
        uri.replace("mongodb://", &format!("mongodb://{USER}:{PASSWORD}@"))
    } else {
        uri
    }
}
