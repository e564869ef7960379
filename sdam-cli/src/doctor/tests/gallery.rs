//! Tests with healthy deployments, and with faults whose remedy is not tested in `remedies.rs`.

use std::{
    io::{Read as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use sdam_core::error::ErrorKind;
use sdam_live::{Certificates, ServerCertificate};
use sdam_sim::users::User;

use super::*;
use crate::testing::with_arbiter;

#[test]
fn healthy_deployments_have_no_finding() {
    for blueprint in [
        Blueprint::replica_set(3),
        Blueprint::standalone(),
        Blueprint::sharded(2),
        Blueprint::load_balanced(2),
    ] {
        sound(blueprint.serve().unwrap().uri());
    }
}

#[test]
fn hosts_of_srv_records_are_checked() {
    let server = mongod(listener(), standalone);
    let host = ServerAddress::new("db.example.com", 27017);
    let mut arguments = arguments();
    let place = ServerAddress::new("127.0.0.1", server.port());
    arguments.target.translate = Some([(host.clone(), place)].into_iter().collect());
    let uri = "mongodb+srv://cluster.example.com/?tls=false";
    let (exit, output) = run_with(&arguments, uri, vec![host]);
    let document: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&*first(&document).0, exit), ("none", Exit::SUCCESS), "{document:#}");
}

#[test]
fn a_silent_host_is_not_waited_for() {
    // The operating system accepts connections for the listener, but no program answers them.
    let silent = listener();
    let address = silent.local_addr().unwrap();
    let mut arguments = arguments();
    arguments.timeout = Some(Duration::from_secs(1));
    let begun = Instant::now();
    let uri = format!("mongodb://{address}/?tlsInsecure=true");
    check_with(&arguments, &uri, "tls.handshake fail", "did not end in time");
    // A check-up should take at most 3.6 s; the longer limit allows for a machine under load.
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// A transport that simulates distant servers, to which connecting takes the time `away`.
/// Connecting with an earlier deadline fails at once; otherwise it succeeds at once, so tests do
/// not wait.
#[derive(Debug)]
struct Far {
    near: Arc<dyn sdam::Transport>,
    clock: Arc<dyn sdam::Clock>,
    away: Duration,
}

#[sdam::async_trait]
impl sdam::Transport for Far {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<sdam_core::time::Instant>,
    ) -> Result<Box<dyn sdam::Connection>, Error> {
        if deadline.is_some_and(|deadline| deadline < self.clock.now() + self.away) {
            return Err(Error::new(ErrorKind::Timeout, Stage::Tls, "the handshake timed out"));
        }
        self.near.connect(target, deadline).await
    }

    fn with_layers(
        &self,
        layers: sdam_transport::layers::Layers,
    ) -> Option<Arc<dyn sdam::Transport>> {
        let near = self.near.with_layers(layers)?;
        Some(Arc::new(Self { near, clock: Arc::clone(&self.clock), away: self.away }))
    }
}

#[test]
fn a_distant_server_has_the_time_that_it_has_from_clients() {
    let certificates = Certificates::create().unwrap();
    let server = tls(&certificates, ServerCertificate::Valid);
    let check = |options: &str, expected: &str, words: &str| {
        let uri = format!("mongodb://{server}/?{}{options}", certificates.options());
        let arguments = Arguments { timeout: None, ..arguments() };
        let seen = with_runtime(Vec::new(), async |mut runtime| {
            let backend = &mut runtime.backend;
            backend.transport = Arc::new(Far {
                near: Arc::clone(&backend.transport),
                clock: Arc::clone(&backend.clock),
                away: Duration::from_secs(6),
            });
            observe::observe(&arguments, &uri, &runtime).await
        });
        let (text, _) = conclude(&arguments, &uri, &seen, Palette::Plain);
        let (problem, finding) = first(&serde_json::from_str(&text).unwrap());
        assert_eq!(problem, expected, "{finding:#}");
        assert!(finding.to_string().contains(words), "{finding:#}");
    };
    check("", "none", "");
    check("&connectTimeoutMS=5000", "tls.handshake fail", "connectTimeoutMS");
}

#[test]
fn a_valid_certificate_is_shown_with_its_days() {
    let certificates = Certificates::create().unwrap();
    let server = tls(&certificates, ServerCertificate::Valid);
    let uri = format!("mongodb://{server}/?{}", certificates.options());
    let (_, document) = run_json(&arguments(), &uri);
    assert_eq!(document["verdict"], "ok", "{document:#}");
    let verify = found(&document, "tls.verify");
    assert!(verify["evidence"]["days"].as_i64().unwrap() > 365, "{verify}");
    assert_eq!(verify["evidence"]["names"][0], "localhost");
}

#[test]
fn a_fault_has_the_remedy_for_its_cause() {
    let refuse = || {
        doc! { "ok": 0, "code": 354, "codeName": "LoadBalancerSupportMismatch", "errmsg": "no" }
    };
    let uri = format!("mongodb://{}/", mongod(listener(), refuse));
    check(&uri, "hello fail", "set `loadBalanced=true`");
    let uri = "mongodb://%2Fno%2Fsuch%2Fmongodb-27017.sock/";
    check(uri, "tcp fail", "net.unixDomainSocket.pathPrefix");
    let set = with_arbiter().serve().unwrap();
    let uri = format!("mongodb://{}/?directConnection=true", set.places()[2].0);
    check(&uri, "select fail", "refuses them as RSArbiter");
}

/// Checks four faults: a connection closed without a reply, TLS alert 80, error code 18 at login,
/// and dropped packets.
#[test]
fn causes_that_cannot_be_told_apart_are_all_given() {
    let check = |uri: &str, expected: &str, causes: &[&str]| {
        let finding = check(uri, expected, "");
        let given = strings(&finding["causes"]).join("; ");
        for cause in causes {
            assert!(given.contains(cause), "{cause:?} in {given}");
        }
    };
    let certificates = Certificates::create().unwrap();

    let closing = start(listener(), |mut stream| stream.read_exact(&mut [0; 16]));
    let uri = format!("mongodb://{closing}/");
    check(&uri, "hello fail", &["TLS", "too old", "no MongoDB"]);

    let alerting = start(listener(), |mut stream| {
        stream.read_exact(&mut [0; 16])?;
        stream.write_all(&[21, 3, 3, 0, 2, 2, 80])
    });
    let uri = format!("mongodb://{alerting}/?{}", certificates.options());
    check(&uri, "tls.handshake fail", &["allow list", "cipher suite", "does not use TLS"]);

    let guarded = Blueprint::standalone().user(User::new("ada", "right"));
    let guarded = guarded.serve().unwrap();
    let uri = guarded.uri().replace("mongodb://", "mongodb://ada:wrong@");
    check(&uri, "auth fail", &["password", "authSource"]);

    let dropping = Dropping::start();
    let uri = format!("mongodb://{}/", dropping.address);
    check(&uri, "tcp fail", &["firewall", "host is down"]);
}

#[test]
fn a_reply_of_48_mb_before_authentication_is_not_read() {
    const LENGTH: i32 = 48_000_000;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let server = start(listener(), move |mut stream| {
        let mut request = [0; 16];
        stream.read_exact(&mut request)?;
        let header = [LENGTH, 1, i32::from_le_bytes(request[4..8].try_into().unwrap()), 2013];
        let header: Vec<u8> = header.into_iter().flat_map(i32::to_le_bytes).collect();
        stream.write_all(&header)?;
        let piece = vec![0; 64 << 10];
        for _ in 0..LENGTH as usize / piece.len() {
            stream.write_all(&piece)?;
            counter.fetch_add(piece.len(), Ordering::Relaxed);
        }
        Ok(())
    });
    check(&format!("mongodb://{server}/"), "hello fail", "");
    // The system's buffers accept some data even if the doctor does not read the data.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 16 << 20, "{sent} bytes were taken");
}
