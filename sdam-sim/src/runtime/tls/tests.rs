//! Tests of handshakes, certificates and faults from the client's view.

use std::sync::{Arc, Mutex};

use bson::doc;
use futures::future::join;
use sdam_core::{
    address::ServerAddress,
    error::Stage,
    options::{Options, TlsOptions},
};
use sdam_transport::{Connection, TransportError, layers::Layers, wire::Exchange};

use super::*;
use crate::{
    Blueprint,
    runtime::{Latency, Sim, Verdict},
    scenario::Scenario,
};

const MEMBER: MemberId = MemberId(0);
const HOUR: Duration = Duration::from_secs(3600);

/// Returns a world whose only server requires TLS.
fn sim() -> Sim {
    let sim = Sim::new(1, &Blueprint::standalone(ServerAddress::new("a", 27017)));
    sim.tls().require();
    sim
}

type Connected = Result<Box<dyn Connection>, TransportError>;

/// Connects to the server within ten seconds with these TLS options.
fn connect(sim: &Sim, options: &str) -> Connected {
    let io = sim.runtime().io;
    let options = Options::parse(&format!("mongodb://a/?tls=true{options}")).unwrap();
    let mut layers = Layers::default();
    layers.tls = options
        .tls
        .map(|options| io.tls.unwrap().tls(&options).unwrap());
    let transport = io.transport.with_layers(layers).unwrap();
    let deadline = sim.now() + Duration::from_secs(10);
    sim.block_on(transport.connect(&options.seeds[0], Some(deadline)))
}

fn connect_in_plain_text(sim: &Sim) -> Connected {
    let host = ServerAddress::new("a", 27017);
    let transport = sim.runtime().io.transport;
    sim.block_on(transport.connect(&host, None))
}

/// Sends a command with a comment of this length, and reads the reply.
fn ping(
    sim: &Sim,
    connection: &mut Box<dyn Connection>,
    length: usize,
) -> Result<(), TransportError> {
    let command = doc! { "ping": 1, "comment": "secret ".repeat(length / 7), "$db": "admin" };
    let message = Exchange::new().command(&command.to_vec().unwrap()).unwrap();
    sim.block_on(async {
        connection.send(message).await?;
        connection.recv().await.map(drop)
    })
}

/// Checks that connecting with `options` fails at the TLS stage with this message.
#[track_caller]
fn check_refused(sim: &Sim, options: &str, message: &str) {
    let error = connect(sim, options).unwrap_err();
    assert_eq!(error.stage(), Stage::Tls, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn encrypted_connections_carry_messages_of_any_length_in_pieces() {
    let sim = sim();
    sim.network().set_latency(Latency::WAN);
    let mut connection = connect(&sim, "").unwrap();
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
        let connection = if encrypted {
            connect(&sim, "")
        } else {
            connect_in_plain_text(&sim)
        };
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
fn a_certificate_that_expires_breaks_no_connection_but_the_next_one() {
    let sim = sim();
    let certificate = sim.tls().certificate(MEMBER);
    sim.tls()
        .set_certificate(MEMBER, certificate.valid(sim.now(), sim.now() + HOUR));
    let mut connection = connect(&sim, "").unwrap();
    sim.run_for(2 * HOUR);
    ping(&sim, &mut connection, 0).unwrap();
    check_refused(
        &sim,
        "",
        "the server's certificate is rejected: it expired 3600",
    );
    connect(&sim, "&tlsAllowInvalidCertificates=true").unwrap();
    sim.tls().renew_certificate(MEMBER);
    connect(&sim, "").unwrap();
}

#[test]
fn a_certificate_needs_the_name_of_the_server_and_a_trusted_issuer() {
    let sim = sim();
    let own = sim.tls().certificate(MEMBER);
    let later = own.clone().valid(sim.now() + HOUR, Instant::MAX);
    for (certificate, message, remedy) in [
        (
            later,
            "it is not valid for another 3599",
            "&tlsInsecure=true",
        ),
        (
            own.clone().issued_by("Mallory"),
            "its issuer, Mallory, is not trusted",
            "&tlsCAFile=ca.pem",
        ),
        (
            Certificate::new(["b", "c"]),
            "it names b, c, and not a",
            "&tlsAllowInvalidHostnames=true",
        ),
    ] {
        sim.tls().set_certificate(MEMBER, certificate);
        check_refused(&sim, "", message);
        sim.tls().add_ca_file("ca.pem", "Mallory");
        connect(&sim, remedy).unwrap();
    }
    sim.tls()
        .set_certificate(MEMBER, Certificate::new(["b", "A"]));
    connect(&sim, "").unwrap();
    check_refused(&sim, "&tlsCAFile=ca.pem", "is not trusted");
}

#[test]
fn a_client_learns_from_its_first_reply_that_its_certificate_is_rejected() {
    let sim = sim();
    sim.tls().demand_client_certificates(true);
    let client = || Certificate::new(["client"]);
    let expired = client().valid(Instant::EPOCH, sim.now());
    sim.run_for(HOUR);
    for (certificate, message) in [
        (None, Some("a certificate of the client is required")),
        (Some(client()), None),
        (
            Some(client().issued_by("Mallory")),
            Some("the issuer of the client's certificate"),
        ),
        (
            Some(expired),
            Some("the client's certificate is not valid now"),
        ),
    ] {
        let option = if certificate.is_some() {
            "&tlsCertificateKeyFile=client.pem"
        } else {
            ""
        };
        if let Some(certificate) = certificate {
            sim.tls()
                .add_certificate_key_file("client.pem", certificate);
        }
        let mut connection = connect(&sim, option).unwrap();
        match (ping(&sim, &mut connection, 0), message) {
            (Ok(()), None) => {}
            (Err(error), Some(message)) => {
                assert_eq!(error.stage(), Stage::Tls, "{error}");
                assert!(error.to_string().contains(message), "{error}");
            }
            (outcome, _) => panic!("{outcome:?} instead of {message:?}"),
        }
    }
}

#[test]
fn a_file_that_does_not_exist_is_a_configuration_error() {
    let provider = sim().runtime().io.tls.unwrap();
    for option in ["tlsCAFile", "tlsCertificateKeyFile"] {
        let options = Options::parse(&format!("mongodb://a/?{option}=none.pem")).unwrap();
        let error = provider.tls(&options.tls.unwrap()).unwrap_err();
        assert_eq!((error.option(), error.value()), (option, "none.pem"));
    }
}

#[test]
fn plain_text_and_tls_that_meet_end_the_connection() {
    let sim = sim();
    let error = ping(&sim, &mut connect_in_plain_text(&sim).unwrap(), 0).unwrap_err();
    assert_eq!(error.stage(), Stage::Hello);
    sim.tls().set_mode(MEMBER, TlsMode::Disabled);
    check_refused(
        &sim,
        "",
        "the server closed the connection in the TLS handshake",
    );
    ping(&sim, &mut connect_in_plain_text(&sim).unwrap(), 0).unwrap();
    sim.tls().set_mode(MEMBER, TlsMode::Allowed);
    ping(&sim, &mut connect_in_plain_text(&sim).unwrap(), 0).unwrap();
    ping(&sim, &mut connect(&sim, "").unwrap(), 0).unwrap();
}

#[test]
fn a_fault_meets_new_handshakes_until_it_ends() {
    let sim = sim();
    let mut connection = connect(&sim, "").unwrap();
    for (fault, message) in [
        (
            TlsFault::Stall,
            "the server did not finish the TLS handshake in time",
        ),
        (
            TlsFault::Cut,
            "the server closed the connection in the TLS handshake",
        ),
        (TlsFault::PlainText, "the server answered in plain text"),
    ] {
        sim.tls().set_fault(MEMBER, Some(fault));
        check_refused(&sim, "", message);
        ping(&sim, &mut connection, 0).unwrap();
        sim.network().heal();
        connect(&sim, "").unwrap();
    }
}

#[test]
fn a_handshake_waits_for_a_frozen_process() {
    let sim = sim();
    let second = Duration::from_secs(1);
    sim.network().set_latency(Latency {
        min: second,
        spread: Duration::ZERO,
        chunked: false,
    });
    // The process accepts the connection after one second, but receives the hello after three.
    let scenario: Scenario = "2s freeze 0\n6s thaw 0".parse().unwrap();
    let began = sim.now();
    let io = sim.runtime().io;
    let mut layers = Layers::default();
    layers.tls = Some(io.tls.unwrap().tls(&TlsOptions::default()).unwrap());
    let transport = io.transport.with_layers(layers).unwrap();
    let host = ServerAddress::new("a", 27017);
    let connect = transport.connect(&host, None);
    let (connected, failed) = sim.block_on(join(connect, scenario.play(&sim)));
    connected.unwrap();
    assert_eq!((sim.now().since(began), failed), (7 * second, Vec::new()));
}
