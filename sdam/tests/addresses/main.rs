//! Deployments that cannot be reached by their members' names: through address translation and
//! through proxies, on real sockets and in the simulator; and the diagnoses without these.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod diagnosis;
mod proxy;
mod translation;
mod wrapped;

use std::time::Duration;

use sdam::{Runtime, ServerAddress, Snapshot};

/// The time limit of every wait, for a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `test` on every runtime with background tasks.
fn on_every_runtime(test: impl Fn(Runtime)) {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    test(sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap());
    test(sdam_runtime_smol::runtime());
    test(sdam_runtime_async_std::runtime());
}

fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}

/// Returns the primary and the number of servers, if all of them are available.
fn complete(snapshot: &Snapshot) -> Option<(ServerAddress, usize)> {
    let description = snapshot.description();
    let servers = description.servers();
    let known = servers
        .iter()
        .all(|server| server.server_type.is_available());
    let primary = description.primary().filter(|_| known)?;
    Some((primary.address.clone(), servers.len()))
}
