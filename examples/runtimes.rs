//! Runs the same application on any of the supported runtimes.
//!
//! `cargo run -p sdam-examples --example runtimes [tokio|smol|async-std] [URI]`. Without a
//! connection string, it simulates a replica set.

use std::{env, error::Error};

use futures::executor::block_on;
use sdam::{Criteria, Runtime, ServerAddress, Topology, runtime, sim::Blueprint};

fn main() -> Result<(), Box<dyn Error>> {
    let name = env::args().nth(1).unwrap_or_else(|| "tokio".to_owned());
    match env::args().nth(2) {
        Some(uri) => run(&name, &uri)?,
        None => run(&name, Blueprint::replica_set(3).serve()?.uri())?,
    };
    Ok(())
}

fn run(name: &str, uri: &str) -> Result<ServerAddress, Box<dyn Error>> {
    match name {
        "tokio" => {
            let host = tokio::runtime::Runtime::new()?;
            host.block_on(async { application(uri, runtime::tokio()?).await })
        }
        // The smol and async-std runtimes work with any executor.
        "smol" => block_on(application(uri, runtime::smol())),
        "async-std" => block_on(application(uri, runtime::async_std())),
        other => Err(format!("no such runtime: {other}; there are tokio, smol, async-std").into()),
    }
}

/// Finds the primary and returns its address. Works with any runtime.
async fn application(uri: &str, runtime: Runtime) -> Result<ServerAddress, Box<dyn Error>> {
    let topology = Topology::builder(uri)?.start(runtime)?;
    let primary = topology.select(&Criteria::write()).await?;
    println!("write to {}", primary.address());
    println!("{}", topology.snapshot().description());
    topology.close().await;
    Ok(primary.address().clone())
}

#[test]
fn the_application_finds_the_same_primary_on_every_runtime() -> Result<(), Box<dyn Error>> {
    let set = Blueprint::replica_set(3).serve()?;
    let primary = run("tokio", set.uri())?;
    assert_eq!(run("smol", set.uri())?, primary);
    assert_eq!(run("async-std", set.uri())?, primary);
    Ok(())
}
