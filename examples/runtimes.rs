//! The same application on every runtime: `cargo run --example runtimes -- --runtime smol`.
//!
//! `--runtime tokio` (the default), `smol` or `async-std`; `--uri URI` names a deployment,
//! otherwise one is simulated.

use std::{env, error::Error, process::ExitCode};

use futures::executor::block_on;
use sdam::{Topology, runtime};
use sdam_select::Criteria;
use sdam_sim::serve::ReplicaSet;
use sdam_transport::Runtime;

/// The application, which is independent of its runtime.
async fn application(uri: &str, runtime: Runtime) -> Result<(), Box<dyn Error>> {
    let topology = Topology::builder(uri)?.start(runtime)?;
    let selected = topology.select(&Criteria::write()).await?;
    println!("writes go to {}", selected.address());
    drop(selected);
    println!("{}", topology.snapshot().description());
    topology.close().await;
    Ok(())
}

fn run(name: &str, uri: &str) -> Result<(), Box<dyn Error>> {
    match name {
        "tokio" => {
            let host = tokio::runtime::Runtime::new()?;
            host.block_on(async { application(uri, runtime::tokio()?).await })
        }
        // These two work with any executor.
        "smol" => block_on(application(uri, runtime::smol())),
        "async-std" => block_on(application(uri, runtime::async_std())),
        other => Err(format!("no such runtime: {other}; there are tokio, smol, async-std").into()),
    }
}

fn main() -> ExitCode {
    match start(env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let (mut name, mut uri) = ("tokio".to_owned(), None);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or(format!("{option} needs a value"))?;
        match option.as_str() {
            "--runtime" => name = value,
            "--uri" => uri = Some(value),
            _ => return Err(format!("no such option: {option}").into()),
        }
    }
    if let Some(uri) = uri {
        return run(&name, &uri);
    }
    let simulated = ReplicaSet::start(3)?;
    run(&name, simulated.uri())
}
