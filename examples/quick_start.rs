//! Connects to a deployment, selects a server for writes and one for reads, and closes.
//!
//! `cargo run -p sdam-examples --example quick_start [URI]`. Without a connection string, it
//! simulates a replica set.

use std::{env, error::Error};

use sdam::{Criteria, ReadMode, ReadPreference, ServerAddress, Topology, runtime, sim::Blueprint};

fn main() -> Result<(), Box<dyn Error>> {
    let host = tokio::runtime::Runtime::new()?;
    match env::args().nth(1) {
        Some(uri) => host.block_on(quick_start(&uri))?,
        None => host.block_on(quick_start(Blueprint::replica_set(3).serve()?.uri()))?,
    };
    Ok(())
}

/// Returns the addresses of the primary and of the selected secondary.
async fn quick_start(uri: &str) -> Result<[ServerAddress; 2], Box<dyn Error>> {
    // Starts the monitors in the background without waiting for them.
    let topology = Topology::builder(uri)?.start(runtime::tokio()?)?;

    // Waits until the primary is known, for up to `serverSelectionTimeoutMS`.
    let primary = topology.select(&Criteria::write()).await?;
    println!("write to {} ({})", primary.address(), primary.server_type());

    let from_secondary = Criteria::read(ReadPreference::new(ReadMode::Secondary))?;
    let secondary = topology.select(&from_secondary).await?;
    println!("read from {} ({})", secondary.address(), secondary.server_type());

    println!("the servers known by now:");
    for server in topology.snapshot().servers() {
        println!("  {}", server.description());
    }

    // Waits until the monitors have ended and their sockets are closed.
    topology.close().await;
    Ok([primary.address().clone(), secondary.address().clone()])
}

#[test]
fn a_primary_and_a_secondary_are_selected() -> Result<(), Box<dyn Error>> {
    let set = Blueprint::replica_set(3).serve()?;
    let host = tokio::runtime::Runtime::new()?;
    let [primary, secondary] = host.block_on(quick_start(set.uri()))?;
    assert_ne!(primary, secondary);
    assert!(set.uri().contains(primary.as_str()), "{primary}");
    assert!(set.uri().contains(secondary.as_str()), "{secondary}");
    Ok(())
}
