//! Finds the primary on a runtime whose futures and sockets never leave their thread, monoio.
//!
//! `cargo run -p sdam-examples --example monoio [URI]`. Without a connection string, it simulates a
//! replica set. On systems other than Linux, it does nothing.

#[cfg(target_os = "linux")]
mod adapter;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let primary = match std::env::args().nth(1) {
        Some(uri) => find_primary(&uri)?,
        None => find_primary(sdam::sim::Blueprint::replica_set(3).serve()?.uri())?,
    };
    println!("writes go to {primary}");
    Ok(())
}

#[cfg(target_os = "linux")]
fn find_primary(uri: &str) -> Result<sdam::ServerAddress, Box<dyn std::error::Error>> {
    let monoio = adapter::Monoio::start();
    let topology = sdam::Topology::builder(uri)?.start(monoio.runtime.clone())?;
    let primary = futures::executor::block_on(async {
        let selected = topology.select(&sdam::Criteria::write()).await;
        topology.close().await;
        selected.map(|selected| selected.address().clone())
    });
    monoio.end()?;
    Ok(primary?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use sdam::sim::{Blueprint, action::Target};
    use sdam_testkit::conformance;

    use super::{adapter::Monoio, find_primary};

    #[test]
    fn a_single_threaded_runtime_keeps_its_contracts() {
        let monoio = Monoio::start();
        conformance::runtime(&monoio.runtime);
        conformance::shutdown(&monoio.runtime.clone(), || monoio.end().unwrap());
    }

    #[test]
    fn a_topology_on_monoio_finds_its_primary() {
        let set = Blueprint::replica_set(3).serve().unwrap();
        let primary = find_primary(set.uri()).unwrap();
        set.kill(Target::Primary).unwrap();
        assert_ne!(find_primary(set.uri()).unwrap(), primary);
    }
}
