//! Connects to a deployment, selects a server for writes and one for reads, and closes.
//!
//! `cargo run -p sdam-examples --example quick_start [URI]`. Without a connection string, it
//! simulates a replica set. The test runs the same function on every other runtime.

use std::{env, error::Error};

#[cfg(test)]
use futures::executor::block_on;
use sdam::{
    Criteria, ReadMode, ReadPreference, Runtime, ServerAddress, Topology, runtime, sim::Blueprint,
};

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        Some(uri) => on_tokio(&uri)?,
        None => on_tokio(Blueprint::replica_set(3).serve()?.uri())?,
    };
    Ok(())
}

fn on_tokio(uri: &str) -> Result<[ServerAddress; 2], Box<dyn Error>> {
    let host = tokio::runtime::Runtime::new()?;
    host.block_on(async { quick_start(uri, runtime::tokio()?).await })
}

/// Returns the addresses of the primary and of the selected secondary.
async fn quick_start(uri: &str, runtime: Runtime) -> Result<[ServerAddress; 2], Box<dyn Error>> {
    // Starts the monitors in the background without waiting for them.
    let topology = Topology::builder(uri)?.start(runtime)?;

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
fn a_primary_and_a_secondary_are_selected_on_every_runtime() -> Result<(), Box<dyn Error>> {
    let set = Blueprint::replica_set(3).serve()?;
    // The runtimes of smol and async-std work with any executor.
    for [primary, secondary] in [
        on_tokio(set.uri())?,
        block_on(quick_start(set.uri(), runtime::smol()))?,
        block_on(quick_start(set.uri(), runtime::async_std()))?,
    ] {
        assert_ne!(primary, secondary);
        assert!(set.uri().contains(primary.as_str()), "{primary}");
        assert!(set.uri().contains(secondary.as_str()), "{secondary}");
    }
    Ok(())
}
