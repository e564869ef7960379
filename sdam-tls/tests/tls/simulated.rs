//! Tests of TLS between a complete topology and a simulated deployment, with rustls at both ends.

use std::{error::Error, time::Duration};

use sdam::{Runtime, ServerAddress, Snapshot, Topology, error::Stage};
use sdam_sim::{
    Blueprint, MemberId,
    config::SetConfig,
    runtime::{Sim, TlsMode},
};

const LONG: Duration = Duration::from_secs(600);
const HOSTS: [&str; 3] = ["a", "b", "c"];
const MEMBERS: [MemberId; 3] = [MemberId(0), MemberId(1), MemberId(2)];

/// Returns a simulation whose members require TLS.
fn world(seed: u64) -> Sim {
    let hosts = HOSTS.map(|host| ServerAddress::new(host, 27017));
    let sim = Sim::new(seed, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
    sim.tls().require();
    sim
}

/// Returns the primary once all members are available.
fn complete(snapshot: &Snapshot) -> Option<ServerAddress> {
    let description = snapshot.description();
    let mut servers = description.servers().iter();
    let available = servers.all(|server| server.server_type.is_available());
    let primary = description.primary().filter(|_| available)?;
    Some(primary.address.clone())
}

fn start(uri: &str, runtime: Runtime) -> Result<Topology, Box<dyn Error>> {
    Ok(Topology::builder(uri)?.start(runtime)?)
}

#[test]
fn members_without_tls_end_the_handshake_and_plain_text_is_refused() {
    let sim = world(1);
    sim.tls().set_mode(MEMBERS[0], TlsMode::Disabled);
    sim.block_on(async {
        let secured = start(&sim.uri(), sim.runtime()).unwrap();
        let plain = start(&sim.uri().replace("tls=true", ""), sim.runtime()).unwrap();
        let seen = |available: [bool; 3]| {
            move |snapshot: &Snapshot| {
                let servers = snapshot.description().servers().iter();
                let seen = servers.map(|server| server.server_type.is_available());
                seen.eq(available).then_some(())
            }
        };
        secured.wait_for(seen([false, true, true]), LONG).await.unwrap();
        plain.wait_for(seen([true, false, false]), LONG).await.unwrap();
        secured.close().await;
        plain.close().await;
    });
}

#[test]
fn a_certificate_that_expires_in_virtual_time_fails_the_next_handshake() {
    let sim = world(1);
    let begin = sim.now();
    for member in MEMBERS {
        let certificate = sim.tls().certificate(member);
        let evening = begin + Duration::from_secs(3600);
        sim.tls().set_certificate(member, certificate.valid(begin, evening));
    }
    sim.block_on(async {
        let topology = start(&sim.uri(), sim.runtime()).unwrap();
        topology.wait_for(complete, LONG).await.unwrap();
        let later = sim.now() + Duration::from_secs(2 * 3600);
        sim.runtime().backend.clock.sleep_until(later).await;
        let snapshot = topology.snapshot();
        assert!(complete(&snapshot).is_some(), "connections survive");
        for member in MEMBERS {
            sim.network().reset(member);
        }
        let expired = |snapshot: &Snapshot| {
            let servers = snapshot.description().servers().iter();
            let mut errors = servers.map(|server| server.error.as_ref());
            let expired = errors.all(|error| {
                error.is_some_and(|it| {
                    it.stage() == Stage::Tls && it.to_string().contains("expired")
                })
            });
            expired.then_some(())
        };
        topology.wait_for(expired, LONG).await.unwrap();
        topology.close().await;
    });
}
