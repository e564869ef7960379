//! Simulated deployments for files that need a whole deployment.

use futures::future::BoxFuture;
use sdam_core::address::ServerAddress;
use sdam_sim::Blueprint;
use sdam_sim::config::SetConfig;
use sdam_sim::runtime::Sim;
use sdam_sim::serve::Builder;
use sdam_spec::unified::{Kind, TestDeployment};
use sdam_transport::runtime::Runtime;

/// The default simulated release.
const VERSION: (u32, u32) = (8, 0);

/// Starts a deployment on loopback TCP.
pub(super) fn serve(
    kind: Kind,
    runtime: Runtime,
    block_on: impl Fn(BoxFuture<'_, ()>) + 'static,
) -> Result<TestDeployment, String> {
    let builder = match kind {
        Kind::Single => Builder::standalone(),
        Kind::ReplicaSet => Builder::replica_set(3),
        Kind::Sharded => Builder::sharded(2),
        Kind::LoadBalanced => Builder::load_balanced(2),
    };
    let server = builder.start().map_err(|error| error.to_string())?;
    let uri = server.uri().to_owned();
    Ok(TestDeployment::new(uri, VERSION, runtime, block_on, server))
}

/// Starts a deployment in a simulated world, where time passes only if all tasks wait.
pub(super) fn simulate(kind: Kind, seed: u64) -> TestDeployment {
    let hosts = |count: u16| (0..count).map(|port| ServerAddress::new("server", 27017 + port));
    let blueprint = match kind {
        Kind::Single => Blueprint::standalone(ServerAddress::new("server", 27017)),
        Kind::ReplicaSet => Blueprint::replica_set(SetConfig::new("rs0", hosts(3))),
        Kind::Sharded => Blueprint::sharded(hosts(2)),
        Kind::LoadBalanced => Blueprint::load_balanced(hosts(1)),
    };
    let sim = Sim::new(seed, &blueprint);
    let (uri, runtime) = (sim.uri(), sim.runtime());
    TestDeployment::new(
        uri,
        VERSION,
        runtime,
        move |future| sim.block_on(future),
        (),
    )
}
