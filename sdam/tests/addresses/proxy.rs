//! Connections through a real SOCKS5 proxy.

use std::time::Duration;

use futures::executor::block_on;
use sdam::{Criteria, Runtime, Snapshot, Stage, Topology};
use sdam_live::{Socks, or_skip};
use sdam_sim::serve::{Builder, ReplicaSet};

use super::{PATIENCE, address, complete, on_every_runtime};

/// Starts a set whose members have the host name `localhost`, which the proxy looks up.
fn set() -> ReplicaSet {
    let name = |_, port| address(&format!("localhost:{port}"));
    ReplicaSet::build(Builder::replica_set(3).name(name)).unwrap()
}

fn start(runtime: Runtime, set: &ReplicaSet, socks: &Socks, options: &str) -> Topology {
    let (uri, proxy) = (set.uri(), socks.address());
    let uri = format!(
        "{uri}&proxyHost={}&proxyPort={}&heartbeatFrequencyMS=500{options}",
        proxy.ip(),
        proxy.port()
    );
    Topology::builder(&uri).unwrap().start(runtime).unwrap()
}

#[test]
fn a_topology_loses_its_servers_with_the_proxy_and_finds_them_again() {
    // U-4
    let Some(socks) = or_skip(Socks::start()).unwrap() else {
        return;
    };
    on_every_runtime(|runtime| {
        let set = set();
        // B-39
        let nobody = "&proxyUsername=&proxyPassword=";
        let topology = start(runtime, &set, &socks, nobody);
        block_on(async {
            let (_, members) = topology.wait_for(complete, PATIENCE).await.unwrap();
            assert_eq!(members, 3);
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
    // U-2
    let Some(socks) = or_skip(Socks::start_secured("user", "right")).unwrap() else {
        return;
    };
    on_every_runtime(|runtime| {
        let set = set();
        let right = "&proxyUsername=user&proxyPassword=right";
        let topology = start(runtime.clone(), &set, &socks, right);
        block_on(topology.wait_for(complete, PATIENCE)).unwrap();
        block_on(topology.close());
        for (credential, cause) in [
            (
                "&proxyUsername=user&proxyPassword=wrong",
                "the proxy rejects proxyUsername and proxyPassword",
            ),
            (
                "",
                "the proxy requires authentication: set proxyUsername and proxyPassword",
            ),
        ] {
            let topology = start(runtime.clone(), &set, &socks, credential);
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
