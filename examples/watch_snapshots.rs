//! Follows a topology's stream of snapshots during an election.
//!
//! `cargo run -p sdam-examples --example watch_snapshots [URI]`. Without a connection string, it
//! simulates a replica set whose primary steps down.

use std::{env, error::Error, sync::Arc};

use futures::StreamExt;
use sdam::{ServerAddress, Topology, TopologyDescription, runtime, sim::Blueprint};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let host = tokio::runtime::Runtime::new()?;
    if let Some(uri) = env::args().nth(1) {
        host.block_on(watch(&uri, || {
            println!("the primary is known: now run rs.stepDown() on it");
            Ok(())
        }))?;
    } else {
        let set = Blueprint::replica_set(3).serve()?;
        host.block_on(watch(set.uri(), || Ok(set.step_down()?)))?;
    }
    Ok(())
}

/// Prints the changes to a topology until its primary has changed, and returns the old and the new
/// primary. Calls `step_down` once the first primary is known.
async fn watch(uri: &str, step_down: impl Fn() -> Result<()>) -> Result<Vec<ServerAddress>> {
    let topology = Topology::builder(uri)?.start(runtime::tokio()?)?;
    let mut snapshots = topology.watch();
    let mut previous = Arc::new(TopologyDescription::default());
    let mut primaries = Vec::new();
    // The stream begins with the current snapshot, skips snapshots while the reader is slow, and
    // ends when the topology is closed.
    while let Some(snapshot) = snapshots.next().await {
        let description = snapshot.description();
        for change in changes(&previous, description) {
            println!("snapshot {}: {change}", snapshot.version());
        }
        previous = Arc::clone(description);
        if let Some(primary) = description.primary()
            && primaries.last() != Some(&primary.address)
        {
            primaries.push(primary.address.clone());
            match primaries.len() {
                1 => step_down()?,
                _ => topology.close().await,
            }
        }
    }
    Ok(primaries)
}

fn changes(old: &TopologyDescription, new: &TopologyDescription) -> Vec<String> {
    let mut changes = Vec::new();
    let (was, is) = (old.topology_type(), new.topology_type());
    if was != is {
        changes.push(format!("{was} -> {is}"));
    }
    for server in new.servers() {
        let (address, is) = (&server.address, server.server_type);
        match old.server(address).map(|server| server.server_type) {
            None => changes.push(format!("{address} has joined as {is}")),
            Some(was) if was != is => changes.push(format!("{address} {was} -> {is}")),
            Some(_) => {}
        }
    }
    for server in old.servers() {
        if new.server(&server.address).is_none() {
            changes.push(format!("{} has left", server.address));
        }
    }
    changes
}

#[test]
fn an_election_is_seen_as_two_primaries() -> Result<()> {
    let set = Blueprint::replica_set(3).serve()?;
    let host = tokio::runtime::Runtime::new()?;
    let primaries = host.block_on(watch(set.uri(), || Ok(set.step_down()?)))?;
    let [old, new] = &primaries[..] else {
        return Err(format!("{primaries:?}").into());
    };
    assert_ne!(old, new);
    Ok(())
}
