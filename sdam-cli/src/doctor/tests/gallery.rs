//! Tests with deployments that have a single fault, and with healthy deployments.

use std::{
    io::{Read as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use bson::{DateTime, Document};
use sdam_core::error::ErrorKind;
use sdam_live::{Certificates, ServerCertificate};
use sdam_sim::users::User;

use super::*;
use crate::testing::with_arbiter;

#[test]
fn a_healthy_set_has_no_finding() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    check(set.uri(), "none", Exit::SUCCESS, "");
}

#[test]
fn a_healthy_standalone_and_healthy_mongoses_also_balanced_have_no_finding() {
    let server = Blueprint::standalone().serve().unwrap();
    check(server.uri(), "none", Exit::SUCCESS, "");
    let cluster = Blueprint::sharded(2).serve().unwrap();
    check(cluster.uri(), "none", Exit::SUCCESS, "");
    let balancer = Blueprint::load_balanced(2).serve().unwrap();
    check(balancer.uri(), "none", Exit::SUCCESS, "");
}

#[test]
fn a_healthy_set_behind_a_table_of_addresses_has_no_finding() {
    let named = |index, port| ServerAddress::new(&format!("mongo-{index}.invalid"), port);
    let set = Listen::new().name(named).serve(Blueprint::replica_set(3)).unwrap();
    check_with(&translated(&set), set.uri(), "none", Exit::SUCCESS, "");
}

#[test]
fn a_misspelled_option_that_guards_connections_is_refused() {
    let uri = "mongodb://127.0.0.1/?tlsCAFille=/ca.pem";
    check(uri, "uri fail", Exit::CONFIGURATION, "did you mean tlsCAFile?");
}

#[test]
fn a_certificate_file_that_is_missing_is_refused() {
    let uri = "mongodb://127.0.0.1/?tls=true&tlsCAFile=/no/such/file.pem";
    check(uri, "uri fail", Exit::CONFIGURATION, "/no/such/file.pem");
}

#[test]
fn a_name_that_does_not_exist_is_a_failure_of_dns() {
    let uri = "mongodb://no-such-host.invalid/";
    check(uri, "dns.addr fail", Exit::FAILURES, "spelling");
}

#[test]
fn a_name_without_srv_records_is_a_failure_of_dns() {
    let uri = "mongodb+srv://cluster.example.com/?tls=false";
    check(uri, "dns.srv fail", Exit::FAILURES, "mongodb+srv");
}

#[test]
fn hosts_of_srv_records_are_checked() {
    let server = Server::mongod(listener(), standalone);
    let host = ServerAddress::new("db.example.com", 27017);
    let mut arguments = arguments();
    let place = ServerAddress::new("127.0.0.1", server.address().port());
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
    let uri = format!("mongodb://{address}/");
    check_with(&arguments, &uri, "hello fail", Exit::FAILURES, "does not answer");
    let uri = format!("mongodb://{address}/?tlsInsecure=true");
    check_with(&arguments, &uri, "tls.handshake fail", Exit::FAILURES, "did not end in time");
    // A check-up should take at most 3.6 s; the longer limit allows for a machine under load.
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// A transport to servers so far away that a connection takes the time `away`. A connection that
/// must be there sooner fails at once, so tests do not wait.
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
    let server = Server::tls(&certificates, ServerCertificate::Valid);
    let check = |options: &str, expected: &str, words: &str| {
        let uri = format!("mongodb://{}/?{}{options}", server.address(), certificates.options());
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
        let (_, finding) = first(
            &serde_json::from_str(&conclude(&arguments, &uri, &seen, Palette::Plain).0).unwrap(),
        );
        let found = finding["id"].as_str().unwrap_or("none");
        assert_eq!(found, expected, "{finding:#}");
        assert!(finding.to_string().contains(words), "{finding:#}");
    };
    check("", "none", "");
    check("&connectTimeoutMS=5000", "tls.handshake", "connectTimeoutMS");
}

#[test]
fn the_reason_for_which_a_certificate_is_rejected_is_found() {
    let certificates = Certificates::create().unwrap();
    let verify = |certificate, words| {
        let server = Server::tls(&certificates, certificate);
        let uri = format!("mongodb://{}/?{}", server.address(), certificates.options());
        check(&uri, "tls.verify fail", Exit::FAILURES, words);
    };
    verify(ServerCertificate::Expired, "has expired");
    verify(ServerCertificate::NotYetValid, "not valid yet");
    verify(ServerCertificate::WrongName, "other.example");
    verify(ServerCertificate::UnknownIssuer, "tlsCAFile");
}

#[test]
fn a_valid_certificate_is_shown_with_its_days() {
    let certificates = Certificates::create().unwrap();
    let server = Server::tls(&certificates, ServerCertificate::Valid);
    let uri = format!("mongodb://{}/?{}", server.address(), certificates.options());
    let (exit, document) = run_json(&arguments(), &uri);
    assert_eq!((&*first(&document).0, exit), ("none", Exit::SUCCESS), "{document:#}");
    let checks = document["checks"].as_array().unwrap();
    let verify = checks.iter().find(|check| check["id"] == "tls.verify").unwrap();
    assert!(verify["evidence"]["days"].as_i64().unwrap() > 365, "{verify}");
    assert_eq!(verify["evidence"]["names"][0], "localhost");
}

#[test]
fn a_member_that_recovers_is_a_warning() {
    let (one, other) = (listener(), listener());
    let hosts = [&one, &other].map(|own| own.local_addr().unwrap().to_string());
    let first = primary(&hosts, 1, "7fffffff0000000000000001");
    let mut second = first.clone();
    second.extend(bson::doc! {
        "ismaster": false, "isWritablePrimary": false, "secondary": false, "me": &hosts[1],
    });
    let uri = format!("mongodb://{}/?replicaSet=rs0", hosts.join(","));
    let _one = Server::mongod(one, move || first.clone());
    let _other = Server::mongod(other, move || second.clone());
    check(&uri, "topo.members warn", Exit::WARNINGS, "rolling back");
}

#[test]
fn a_refused_hello_has_the_remedy_of_its_code() {
    let refuse = || {
        bson::doc! { "ok": 0, "code": 354, "codeName": "LoadBalancerSupportMismatch", "errmsg": "no" }
    };
    let server = Server::mongod(listener(), refuse);
    let uri = format!("mongodb://{}/", server.address());
    check(&uri, "hello fail", Exit::FAILURES, "set `loadBalanced=true`");
}

#[test]
fn a_socket_file_that_is_missing_is_not_blamed_on_the_network() {
    let uri = "mongodb://%2Fno%2Fsuch%2Fmongodb-27017.sock/";
    check(uri, "tcp fail", Exit::FAILURES, "net.unixDomainSocket.pathPrefix");
}

#[test]
fn an_arbiter_behind_a_direct_connection_is_no_server_for_reads() {
    let set = with_arbiter().serve().unwrap();
    let uri = format!("mongodb://{}/?directConnection=true", set.places()[2].0);
    check(&uri, "select fail", Exit::FAILURES, "refuses them as RSArbiter");
}

#[test]
fn a_set_without_primary_is_recognized() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    set.step_down().unwrap();
    check(set.uri(), "topo.primary fail", Exit::FAILURES, "no primary");
}

#[test]
fn two_primaries_are_shown_with_their_elections() {
    let listeners = [listener(), listener()];
    let names = listeners.each_ref().map(|own| own.local_addr().unwrap().to_string());
    let [a, b] = listeners;
    let reversed = [names[1].clone(), names[0].clone()];
    let own = names.clone();
    let _a = Server::mongod(a, move || primary(&own, 1, "7fffffff0000000000000001"));
    let _b = Server::mongod(b, move || primary(&reversed, 1, "7fffffff0000000000000002"));
    let uri = format!("mongodb://{}/?replicaSet=rs0", names.join(","));
    check(&uri, "topo.primary fail", Exit::FAILURES, "7fffffff0000000000000002");
}

#[test]
fn a_secondary_that_lags_is_a_warning() {
    let listeners = [listener(), listener()];
    let names = listeners.each_ref().map(|own| own.local_addr().unwrap().to_string());
    let [behind, ahead] = lagging(&names, 40_000);
    let [a, b] = listeners;
    let _a = Server::mongod(a, move || ahead.clone());
    let _b = Server::mongod(b, move || behind.clone());
    let uri = format!("mongodb://{}/?replicaSet=rs0", names.join(","));
    check(&uri, "lag warn", Exit::WARNINGS, "40 s behind the primary");
}

/// Checks four faults: a connection closed without a reply, TLS alert 80, error code 18 at login,
/// and dropped packets.
#[test]
fn causes_that_cannot_be_told_apart_are_all_given() {
    let check = |uri: &str, expected: &str, causes: &[&str]| {
        let seen = observe(&arguments(), uri);
        let document = check_formats(&arguments(), uri, &seen, Exit::FAILURES);
        let (problem, finding) = first(&document);
        assert_eq!(problem, expected, "{finding:#}");
        let given = strings(&finding["causes"]).join("; ");
        for cause in causes {
            assert!(given.contains(cause), "{cause:?} in {given}");
        }
    };
    let certificates = Certificates::create().unwrap();

    let closing = Server::start(listener(), |mut stream| stream.read_exact(&mut [0; 16]));
    let uri = format!("mongodb://{}/", closing.address());
    check(&uri, "hello fail", &["TLS", "too old", "no MongoDB"]);

    let alerting = Server::start(listener(), |mut stream| {
        stream.read_exact(&mut [0; 16])?;
        stream.write_all(&[21, 3, 3, 0, 2, 2, 80])
    });
    let uri = format!("mongodb://{}/?{}", alerting.address(), certificates.options());
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
fn a_server_with_another_clock_of_another_time_or_without_its_set_is_recognized() {
    let check = |change: fn(&mut Document), expected: &str, exit: Exit, words: &str| {
        let server = Server::mongod(listener(), move || {
            let mut reply = standalone();
            change(&mut reply);
            reply
        });
        let uri = format!("mongodb://{}/", server.address());
        check(&uri, expected, exit, words);
    };
    let ahead = |reply: &mut Document| {
        let ahead = DateTime::now().timestamp_millis() + 90_000;
        reply.insert("localTime", DateTime::from_millis(ahead));
    };
    check(ahead, "clock warn", Exit::WARNINGS, "ahead of");
    let old = |reply: &mut Document| drop(reply.insert("maxWireVersion", 2));
    let words = "wire versions 0 to 2";
    check(old, "hello fail", Exit::FAILURES, words);
    let ghost = |reply: &mut Document| {
        reply.extend(bson::doc! {
            "ismaster": false, "isWritablePrimary": false, "isreplicaset": true,
        });
    };
    check(ghost, "hello fail", Exit::FAILURES, "rs.initiate()");
}

#[test]
fn a_reply_of_48_mb_before_authentication_is_not_read() {
    const LENGTH: i32 = 48_000_000;
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counter) = (stream.unwrap(), Arc::clone(&counter));
            thread::spawn(move || {
                let mut request = [0; 16];
                let is_asked = stream.read_exact(&mut request).is_ok();
                let header =
                    [LENGTH, 1, i32::from_le_bytes(request[4..8].try_into().unwrap()), 2013];
                let header: Vec<u8> = header.into_iter().flat_map(i32::to_le_bytes).collect();
                let mut left = is_asked && stream.write_all(&header).is_ok();
                let piece = vec![0; 64 << 10];
                for _ in 0..LENGTH as usize / piece.len() {
                    left = left && stream.write_all(&piece).is_ok();
                    counter.fetch_add(if left { piece.len() } else { 0 }, Ordering::Relaxed);
                }
            });
        }
    });
    let (exit, output) = run_json(&arguments(), &format!("mongodb://{address}/"));
    assert_eq!(exit, Exit::FAILURES, "{output:#}");
    // The system's buffers accept some data even if the doctor does not read the data.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 16 << 20, "{sent} bytes were taken");
}
