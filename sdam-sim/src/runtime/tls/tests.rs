//! Tests of TLS handshakes and certificates as clients see them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::doc;
use futures::future::join;
use sdam_core::{address::ServerAddress, error::Error, options::TlsOptions};
use sdam_transport::{connect::Connection, layers::Layers, wire::Exchange};

use super::*;
use crate::{
    Blueprint,
    runtime::{Latency, Sim, Verdict},
    scenario::Scenario,
};

const MEMBER: MemberId = MemberId(0);

/// Returns a simulation whose only server requires TLS.
fn sim() -> Sim {
    let sim = Sim::new(1, &Blueprint::standalone());
    sim.tls().require();
    sim
}

type Connected = Result<Box<dyn Connection>, Error>;

/// Connects to the server with TLS, within ten seconds.
fn connect(sim: &Sim) -> Connected {
    let backend = sim.runtime().backend;
    let mut layers = Layers::default();
    layers.tls = Some(backend.tls.unwrap().tls(&TlsOptions::default()).unwrap());
    let transport = backend.transport.with_layers(layers).unwrap();
    let deadline = sim.now() + Duration::from_secs(10);
    sim.block_on(transport.connect(&ServerAddress::new("a", 27017), Some(deadline)))
}

fn connect_in_plain_text(sim: &Sim) -> Connected {
    let host = ServerAddress::new("a", 27017);
    let transport = sim.runtime().backend.transport;
    sim.block_on(transport.connect(&host, None))
}

/// Sends a command with a comment of about this length, and reads the reply.
fn ping(sim: &Sim, connection: &mut Box<dyn Connection>, length: usize) -> Result<(), Error> {
    let command = doc! { "ping": 1, "comment": "secret ".repeat(length / 7), "$db": "admin" };
    let message = Exchange::new().command(&command.to_vec().unwrap()).unwrap();
    sim.block_on(async {
        connection.send(message).await?;
        connection.recv().await.map(drop)
    })
}

#[test]
fn encrypted_connections_carry_messages_of_any_length_in_pieces() {
    let sim = sim();
    sim.network().set_latency(Latency::WAN);
    let mut connection = connect(&sim).unwrap();
    for length in [0, 1000, 100_000] {
        ping(&sim, &mut connection, length).unwrap();
    }
    let traffic = sim.network().traffic();
    assert_eq!((traffic.encrypted, traffic.plain_text), (1, 0));
}

#[test]
fn no_plain_text_is_on_the_wire_of_an_encrypted_connection() {
    for encrypted in [true, false] {
        let sim = sim();
        sim.tls().set_mode(MEMBER, TlsMode::Allowed);
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let wire = Arc::clone(&seen);
        sim.network().add_rule(move |frame| {
            wire.lock().unwrap().extend(frame.bytes);
            Verdict::Pass
        });
        let connection = if encrypted { connect(&sim) } else { connect_in_plain_text(&sim) };
        ping(&sim, &mut connection.unwrap(), 100).unwrap();
        let seen = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
        assert_eq!(seen.contains("secret"), !encrypted);
        let traffic = sim.network().traffic();
        assert_eq!(
            (traffic.encrypted, traffic.plain_text),
            if encrypted { (1, 0) } else { (0, 1) }
        );
    }
}

#[test]
fn a_handshake_waits_for_a_frozen_process() {
    let sim = sim();
    let second = Duration::from_secs(1);
    sim.network().set_latency(Latency { min: second, spread: Duration::ZERO, chunked: false });
    // The process accepts the connection after one second, but receives the hello only after three
    // seconds.
    let scenario: Scenario = "2s freeze 0\n6s thaw 0".parse().unwrap();
    let began = sim.now();
    let backend = sim.runtime().backend;
    let mut layers = Layers::default();
    layers.tls = Some(backend.tls.unwrap().tls(&TlsOptions::default()).unwrap());
    let transport = backend.transport.with_layers(layers).unwrap();
    let host = ServerAddress::new("a", 27017);
    let connect = transport.connect(&host, None);
    let (connected, failed) = sim.block_on(join(connect, scenario.play(&sim)));
    connected.unwrap();
    assert_eq!((sim.now().since(began), failed), (7 * second, Vec::new()));
}
