//! Tests deployments that cannot be reached by their members' names, but only through address
//! translation or a real SOCKS5 proxy.

use sdam::options::{AddressTable, HostTranslation};
use sdam_sim::serve::Listen;

use super::*;

fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}

/// Returns the primary, if all three members are available.
fn complete(snapshot: &Snapshot) -> Option<ServerAddress> {
    let description = snapshot.description();
    let servers = description.servers().iter();
    let known = servers.filter(|server| server.server_type.is_available());
    let primary = description.primary().filter(|_| known.count() == 3)?;
    Some(primary.address.clone())
}

#[test]
fn a_set_with_unknown_names_fails_over_through_a_table_or_a_host_and_keeps_its_names() {
    let table = |set: &Served| AddressTable::from_iter(set.places().to_vec());
    on_every_runtime(|runtime| {
        // The members keep their ports in the first round only.
        for keeps_ports in [true, false] {
            let name = move |index, port| {
                let port = if keeps_ports { port } else { 27017 };
                address(&format!("mongo-{index}.invalid:{port}"))
            };
            let set = Listen::new().name(name).serve(Blueprint::replica_set(3)).unwrap();
            let builder = if keeps_ports {
                let builder = Topology::builder(set.uri()).unwrap();
                builder.translate(HostTranslation::new("127.0.0.1"))
            } else {
                // A seed may be the local end of a tunnel if the table contains all members.
                let (_, tunnel) = &set.places()[0];
                let builder = Topology::builder(&format!("mongodb://{tunnel}/?replicaSet=rs0"));
                builder.unwrap().translate(table(&set))
            };
            let topology = builder.start(runtime.clone()).unwrap();
            let first = block_on(topology.wait_for(complete, PATIENCE)).unwrap();
            set.step_down().unwrap();
            let other = |snapshot: &_| complete(snapshot).filter(|primary| *primary != first);
            let second = block_on(topology.wait_for(other, PATIENCE)).unwrap();
            for name in [first, second] {
                assert!(name.host().starts_with("mongo-"), "{name}");
            }
            block_on(topology.close());
        }
    });
}

/// Starts a topology of a set whose members have the host name `localhost`, which the proxy looks
/// up.
fn start(runtime: &Runtime, socks: &Socks, options: &str) -> (Topology, Served) {
    let name = |_, port| address(&format!("localhost:{port}"));
    let set = Listen::new().name(name).serve(Blueprint::replica_set(3)).unwrap();
    let (ip, port) = (socks.address().ip(), socks.address().port());
    let proxy = format!("proxyHost={ip}&proxyPort={port}&heartbeatFrequencyMS=500{options}");
    let builder = Topology::builder(&format!("{}&{proxy}", set.uri())).unwrap();
    (builder.start(runtime.clone()).unwrap(), set)
}

#[test]
fn a_topology_loses_its_servers_with_the_proxy_and_finds_them_again() {
    // Monitors connect through the proxy (U-4).
    let Some(socks) = or_skip(Socks::start()).unwrap() else {
        return;
    };
    on_every_runtime(|runtime| {
        // An empty `proxyUsername` or `proxyPassword` is ignored (B-39).
        let (topology, _set) = start(&runtime, &socks, "&proxyUsername=&proxyPassword=");
        block_on(async {
            topology.wait_for(complete, PATIENCE).await.unwrap();
            socks.kill().unwrap();
            let lost = |snapshot: &Snapshot| {
                let mut servers = snapshot.description().servers().iter();
                let failed = servers.all(|server| {
                    let error = server.error.as_ref();
                    error.is_some_and(|error| error.stage() == Stage::Proxy)
                });
                failed.then_some(())
            };
            topology.wait_for(lost, PATIENCE).await.unwrap();
            socks.restart().unwrap();
            topology.wait_for(complete, PATIENCE).await.unwrap();
            topology.close().await;
        });
    });
}

#[test]
fn a_credential_is_accepted_or_rejected_in_words() {
    // The client authenticates if the proxy requests it (U-2).
    let Some(socks) = or_skip(Socks::start_secured("user", "right")).unwrap() else {
        return;
    };
    on_every_runtime(|runtime| {
        let right = "&proxyUsername=user&proxyPassword=right";
        let (topology, _set) = start(&runtime, &socks, right);
        block_on(topology.wait_for(complete, PATIENCE)).unwrap();
        block_on(topology.close());
        let wrong = "&proxyUsername=user&proxyPassword=wrong";
        let rejected = "the proxy rejects proxyUsername and proxyPassword";
        let required = "the proxy requires authentication: set proxyUsername and proxyPassword";
        for (credential, cause) in [(wrong, rejected), ("", required)] {
            let (topology, _set) = start(&runtime, &socks, credential);
            let failed = |snapshot: &Snapshot| {
                let mut servers = snapshot.description().servers().iter();
                servers.find_map(|server| server.error.clone())
            };
            let error = block_on(topology.wait_for(failed, PATIENCE)).unwrap();
            assert!(error.message().ends_with(cause), "{error}");
            let waiting = Duration::from_millis(1);
            let error = block_on(topology.select_within(&Criteria::write(), waiting));
            let text = format!("{:#}", error.unwrap_err());
            assert!(text.contains(cause), "{text}");
            assert!(!text.contains("wrong"), "{text}");
            block_on(topology.close());
        }
    });
}
