//! Tests that apply the remedy for a fault, and check that the doctor then finds no problem.

use std::{
    io::{Read as _, Write as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use bson::{DateTime, Document, doc, oid::ObjectId};
use sdam::tls::rustls::RootCertStore;
use sdam_live::{Certificates, ServerCertificate};
use sdam_sim::users::User;

use super::*;

/// Checks that the deployment at `broken` has the problem `expected`, and that a remedy for it
/// contains `words`. Returns the finding.
fn advised(arguments: &Arguments, broken: &str, expected: &str, words: &str) -> Value {
    let finding = check_with(arguments, broken, expected, words);
    let remedies = strings(&finding["remedies"]);
    assert!(remedies.iter().any(|own| own.contains(words)), "{words:?} in {finding:#}");
    finding
}

/// Checks that a remedy for the deployment at `broken` contains `words`, and that the deployment at
/// `mended` has no problem. Returns the finding.
fn mended(broken: &str, expected: &str, words: &str, mended: &str) -> Value {
    let finding = advised(&arguments(), broken, expected, words);
    sound(mended);
    finding
}

fn named(index: u16, port: u16) -> ServerAddress {
    ServerAddress::new(&format!("mongo-{index}.invalid"), port)
}

#[test]
fn a_misspelled_option_gets_its_name() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let with = |option| format!("{}&{option}=20", set.uri());
    let words = "write localThresholdMS";
    mended(&with("localTresholdMS"), "uri warn", words, &with("localThresholdMS"));
    mended(&with("colour"), "uri warn", "correct the option, or remove it", set.uri());
}

#[test]
fn a_wrong_port_is_corrected() {
    let server = mongod(listener(), standalone);
    let right = format!("mongodb://{server}/");
    let (_port, closed) = closed();
    mended(&format!("mongodb://{closed}/"), "tcp fail", "correct the port", &right);
    // A warning about an option is not the first problem if there is a failure.
    let uri = format!("mongodb://{closed}/?localTresholdMS=20");
    advised(&arguments(), &uri, "tcp fail", "start the server, or correct the port");
    for answer in
        ["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "SSH-2.0-OpenSSH_9.2p1\r\n"]
    {
        let other = start(listener(), move |mut stream| {
            stream.read_exact(&mut [0; 16])?;
            stream.write_all(answer.as_bytes())
        });
        let uri = format!("mongodb://{other}/");
        mended(&uri, "hello fail", "correct the port", &right);
    }
}

#[test]
fn tls_is_turned_on_or_off_as_the_server_has_it() {
    let certificates = Certificates::create().unwrap();
    let uris = |address: SocketAddr| {
        let plain = format!("mongodb://{address}/");
        let tls = format!("{plain}?{}", certificates.options());
        (plain, tls)
    };
    let (plain, with) = uris(tls(&certificates, ServerCertificate::Valid));
    mended(&plain, "hello fail", "add tls=true", &with);
    let (plain, with) = uris(mongod(listener(), standalone));
    mended(&with, "tls.handshake fail", "remove tls=true", &plain);
}

#[test]
fn a_missing_client_certificate_is_not_taken_for_a_server_without_tls() {
    let certificates = Certificates::create().unwrap();
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(certificates.authority()).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let clients = clients.build().unwrap();
    let server = tls_for(Some(clients), &certificates, ServerCertificate::Valid);
    let uri = format!("mongodb://{server}/?{}", certificates.options());
    let file = |path: PathBuf| format!("{uri}&tlsCertificateKeyFile={}", path.display());
    for wrong in [uri.clone(), file(certificates.unknown_client())] {
        let words = "set tlsCertificateKeyFile";
        let finding = advised(&arguments(), &wrong, "tls.handshake fail", words);
        assert!(!finding["remedies"].to_string().contains("remove tls=true"), "{finding:#}");
    }
    sound(&file(certificates.client()));
}

#[test]
fn a_certificate_is_issued_again_or_the_file_that_makes_it_trusted_is_named() {
    use ServerCertificate::{Expired, NotYetValid, SelfSigned, UnknownIssuer, Valid, WrongName};

    let certificates = Certificates::create().unwrap();
    let uri = |certificate, file: PathBuf| {
        let server = tls(&certificates, certificate);
        format!("mongodb://{server}/?tls=true&tlsCAFile={}", file.display())
    };
    let authority = certificates.authority();
    let right = uri(Valid, authority.clone());
    for (certificate, title, words) in [
        (Expired, "has expired", "renew it"),
        (NotYetValid, "not valid yet", "issue it again"),
        (WrongName, "other names", "issue it for this one as well"),
    ] {
        let finding =
            mended(&uri(certificate, authority.clone()), "tls.verify fail", words, &right);
        assert!(finding["title"].to_string().contains(title), "{finding:#}");
    }
    for (certificate, words, file) in [
        (SelfSigned, "or the certificate itself", certificates.server(SelfSigned)),
        (UnknownIssuer, "add that authority's certificate", certificates.other_authority()),
    ] {
        let broken = uri(certificate, authority.clone());
        mended(&broken, "tls.verify fail", words, &uri(certificate, file));
    }
    let (start, _) = right.split_once("&tlsCAFile").unwrap();
    let words = "remove tlsAllowInvalidCertificates or tlsInsecure, and set tlsCAFile";
    mended(&format!("{start}&tlsInsecure=true"), "uri warn", words, &right);
}

#[test]
fn a_name_that_the_certificate_has_is_used() {
    let certificates = Certificates::create().unwrap();
    let server = tls(&certificates, ServerCertificate::WrongName);
    let uri = |host: &str| format!("mongodb://{host}/?{}", certificates.options());
    let words = "connect by a name that it has";
    advised(&arguments(), &uri(&server.to_string()), "tls.verify fail", words);
    let mut arguments = arguments();
    arguments.target.translate = Some(format!("other.example:27017={server}").parse().unwrap());
    check_with(&arguments, &uri("other.example"), "none", "");
}

#[test]
fn a_wrong_set_name_is_replaced_by_the_right_one() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let broken = set.uri().replace("replicaSet=rs0", "replicaSet=other");
    mended(&broken, "topo.kind fail", "set replicaSet=rs0", set.uri());
}

#[test]
fn seeds_of_two_sets_are_separated() {
    let (one, other) = (listener(), listener());
    let names = [&one, &other].map(|own| own.local_addr().unwrap().to_string());
    let uri = format!("mongodb://{}/", names.join(","));
    for (index, listener) in [one, other].into_iter().enumerate() {
        let mut reply = healthy(&names[index..=index]).remove(0);
        reply.insert("setName", format!("rs{index}"));
        mongod(listener, move || reply.clone());
    }
    let finding = advised(&arguments(), &uri, "topo.kind fail", "keep the seeds of one set only");
    let (_, advice) = strings(&finding["remedies"])[0].split_once("; for rs0: ").unwrap();
    assert_eq!(advice, format!("mongodb://{}/?replicaSet=rs0", names[0]));
    sound(advice);
}

#[test]
fn members_whose_names_lead_nowhere_are_translated_or_one_is_connected_to_alone() {
    let set = Listen::new().name(named).serve(Blueprint::replica_set(1)).unwrap();
    let (_, place) = set.places()[0].clone();
    let uri = format!("mongodb://{place}/?replicaSet=rs0");
    let finding = advised(&arguments(), &uri, "topo.members fail", "--translate");
    let remedies = strings(&finding["remedies"]);
    assert!(remedies.len() == 1 && remedies[0].contains("directConnection=true"), "{remedies:?}");
    let (_, document) = run_json(&arguments(), &uri);
    assert!(!document.to_string().contains("in the connection string"), "{document:#}");
    check_with(&translated(&set), set.uri(), "none", "");
    sound(&format!("mongodb://{place}/?directConnection=true"));
}

#[test]
fn exchanged_places_are_exchanged_back() {
    let set = Listen::new().name(named).serve(Blueprint::replica_set(2)).unwrap();
    let places = set.places();
    let [(first, one), (second, other)] = [0, 1].map(|index: usize| places[index].clone());
    let mut arguments = arguments();
    let table = [(first, other), (second, one)];
    arguments.target.translate = Some(table.into_iter().collect());
    advised(&arguments, set.uri(), "topo.members fail", "in --translate");
    check_with(&translated(&set), set.uri(), "none", "");
}

#[test]
fn a_member_that_is_down_is_started_before_names_are_doubted() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let secondary = 2;
    set.kill(secondary).unwrap();
    let uri = format!("mongodb://{}/?replicaSet=rs0", set.places()[0].1);
    let finding = advised(&arguments(), &uri, "topo.members fail", "start the server");
    let first = finding["remedies"][0].as_str().unwrap();
    assert!(first.starts_with("start the server"), "{finding:#}");
    set.restart(secondary).unwrap();
    // The restarted member needs some time to join the set.
    let limit = Instant::now() + Duration::from_secs(30);
    while run_json(&arguments(), &uri).0 != Exit::SUCCESS {
        assert!(Instant::now() < limit, "{uri} is not healthy");
    }
}

#[test]
fn a_direct_connection_to_a_secondary_serves_reads_only() {
    let set = Blueprint::replica_set(2).serve().unwrap();
    let (_, place) = set.places()[1].clone();
    let direct = format!("mongodb://{place}/?directConnection=true");
    mended(&direct, "topo.primary warn", "remove directConnection=true", set.uri());
    let (_, document) = run_json(&arguments(), &direct);
    let select = found(&document, "select");
    assert_eq!(select["status"], "info");
    assert!(select["causes"][0].as_str().unwrap().contains("Single"), "{select:#}");
}

#[test]
fn a_login_needs_the_right_password_and_database() {
    let server = Blueprint::standalone()
        .user(User::new("ada", "right"))
        .user(User::new("eve", "right").source("app"))
        .serve()
        .unwrap();
    let uri = |user: &str, options: &str| {
        server.uri().replace("mongodb://", &format!("mongodb://{user}@")) + options
    };
    let right = uri("ada:right", "");
    mended(server.uri(), "auth fail", "mongodb://USER:PASSWORD@", &right);
    mended(&uri("ada:wrong", ""), "auth fail", "check the user name and the password", &right);
    let words = "set authSource to the database in which the user was created";
    let in_app = uri("eve:right", "&authSource=app");
    mended(&uri("eve:right", ""), "auth fail", words, &in_app);
    let in_app = uri("ada:right", "&authSource=app");
    mended(&in_app, "auth fail", "set authSource=admin", &right);

    // A write test would have to log in again, so the doctor skips it.
    let mut arguments = arguments();
    arguments.write = Some(Collection::parse("app.canary").unwrap());
    let (_, document) = run_json(&arguments, &uri("ada:wrong", ""));
    let write = found(&document, "write");
    assert_eq!(write["status"], "skip", "{write:#}");
    assert!(write["blockedBy"].as_str().unwrap().starts_with("auth "), "{write:#}");
    assert_eq!(write["ms"], 0.0, "{write:#}");
}

#[test]
fn a_read_preference_without_a_server_is_changed() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let broken = format!("{}&readPreference=secondary&readPreferenceTags=dc:ny", set.uri());
    mended(&broken, "select fail", "change readPreference or readPreferenceTags", set.uri());
}

#[test]
fn a_proxy_that_does_not_run_is_left_out() {
    let server = mongod(listener(), standalone);
    let (_port, closed) = closed();
    let right = format!("mongodb://{server}/");
    let broken = format!("{right}?proxyHost=127.0.0.1&proxyPort={}", closed.port());
    mended(&broken, "tcp fail", "proxyPort", &right);
}

#[test]
fn writes_are_tested_on_request_and_need_the_right_to_write() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let mut arguments = arguments();
    arguments.write = Some(Collection::parse("app.canary").unwrap());
    let (exit, document) = run_json(&arguments, set.uri());
    let write = found(&document, "write");
    assert_eq!((exit, &write["status"]), (Exit::SUCCESS, &Value::from("ok")), "{write:#}");
    // Without a primary, an earlier check fails, so the doctor skips the write test.
    let set = Blueprint::replica_set(1).serve().unwrap();
    set.step_down().unwrap();
    arguments.timeout = Some(Duration::from_millis(200));
    let (_, document) = run_json(&arguments, set.uri());
    let write = found(&document, "write");
    assert_eq!(write["status"], "skip", "{write:#}");
}

/// Starts a set of `count` members that send the replies of a healthy set, modified by `change`.
/// Checks that the suggested remedy contains `words`, and the finding `shown`. The members then
/// send the replies of a healthy set, and the doctor must find no problem.
fn repaired(
    count: usize,
    expected: &str,
    (words, shown): (&str, &str),
    change: impl Fn(&[String], &mut [Document]),
) {
    let listeners: Vec<_> = (0..count).map(|_| listener()).collect();
    let hosts = listeners.iter().map(|own| own.local_addr().unwrap().to_string());
    let hosts: Vec<_> = hosts.collect();
    let right = healthy(&hosts);
    let mut broken = right.clone();
    change(&hosts, &mut broken);
    let is_repaired = Arc::new(AtomicBool::new(false));
    for (listener, replies) in listeners.into_iter().zip(broken.into_iter().zip(right)) {
        let is_repaired = Arc::clone(&is_repaired);
        mongod(listener, move || {
            let (broken, right) = replies.clone();
            if is_repaired.load(Ordering::Relaxed) { right } else { broken }
        });
    }
    let uri = format!("mongodb://{}/?replicaSet=rs0", hosts.join(","));
    let finding = advised(&arguments(), &uri, expected, words);
    assert!(finding.to_string().contains(shown), "{shown:?} in {finding:#}");
    is_repaired.store(true, Ordering::Relaxed);
    sound(&uri);
}

/// Returns the replies of a healthy set with the members `hosts`, the first of which is the
/// primary. The secondaries lag as much as they may without a warning.
fn healthy(hosts: &[String]) -> Vec<Document> {
    let now = DateTime::now().timestamp_millis();
    let reply = |me: &String| {
        let is_primary = *me == hosts[0];
        let written = DateTime::from_millis(if is_primary { now } else { now - 11_000 });
        let mut reply = standalone();
        reply.remove("localTime");
        reply.extend(doc! {
            "ismaster": is_primary, "isWritablePrimary": is_primary, "secondary": !is_primary,
            "setName": "rs0", "setVersion": 1, "hosts": hosts, "me": me, "primary": &hosts[0],
            "lastWrite": { "lastWriteDate": written },
        });
        if is_primary {
            reply.insert("electionId", election(1));
        }
        reply
    };
    hosts.iter().map(reply).collect()
}

fn election(term: u8) -> ObjectId {
    ObjectId::from_bytes([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, term])
}

/// Makes a member of a healthy set the primary or a secondary.
fn turn(reply: &mut Document, is_primary: bool) {
    let roles = [("ismaster", is_primary), ("isWritablePrimary", is_primary)];
    reply.extend(roles.map(|(name, value)| (name.to_owned(), value.into())));
    reply.insert("secondary", !is_primary);
}

#[test]
fn members_that_do_not_serve_as_they_should_do_so_later() {
    let words = ("wait for SECONDARY", "rolling back");
    repaired(2, "topo.members warn", words, |_, replies| {
        replies[1].insert("secondary", false);
    });
    let words = ("rs.printSecondaryReplicationInfo()", "12 s behind the primary");
    repaired(2, "lag warn", words, |_, replies| {
        let written = replies[0].get_document("lastWrite").unwrap();
        let written = written.get_datetime("lastWriteDate").unwrap().timestamp_millis();
        let written = DateTime::from_millis(written - 12_000);
        replies[1].insert("lastWrite", doc! { "lastWriteDate": written });
    });
    let words = ("run the check again after 10 s", "7fffffff0000000000000002");
    repaired(2, "topo.primary fail", words, |hosts, replies| {
        turn(&mut replies[1], true);
        replies[1].extend(doc! { "primary": &hosts[1], "electionId": election(2) });
    });
    let words = ("look at rs.status()", "names another one");
    repaired(2, "topo.primary warn", words, |hosts, replies| {
        replies[1].insert("primary", &hosts[1]);
    });
    let words = ("look at rs.status()", "has another version");
    repaired(2, "topo.primary warn", words, |_, replies| {
        replies[1].insert("setVersion", 2);
    });
    let words = ("run the check again after 15 s", "the set has no primary");
    repaired(2, "topo.primary fail", words, |_, replies| {
        turn(&mut replies[0], false);
        for reply in replies {
            reply.remove("primary");
        }
    });
}

#[test]
fn a_server_is_updated_initiated_or_synchronized() {
    let words = ("update the older of the two", "wire versions 0 to 2");
    repaired(1, "hello fail", words, |_, replies| drop(replies[0].insert("maxWireVersion", 2)));
    let words = ("rs.initiate()", "belongs to none");
    repaired(1, "hello fail", words, |_, replies| {
        turn(&mut replies[0], false);
        replies[0].remove("setName");
        replies[0].extend(doc! { "secondary": false, "isreplicaset": true });
    });
    for (seconds, shown) in [(90, "ahead of"), (-90, "behind")] {
        repaired(1, "clock warn", ("check NTP on both", shown), |_, replies| {
            let time = DateTime::now().timestamp_millis() + seconds * 1_000;
            replies[0].insert("localTime", DateTime::from_millis(time));
        });
    }
}

#[test]
fn a_server_that_hangs_or_closes_connections_answers_later() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    set.freeze(0).unwrap();
    let mut arguments = arguments();
    arguments.timeout = Some(Duration::from_secs(1));
    advised(&arguments, set.uri(), "hello fail", "look at the server and its log");
    set.thaw(0).unwrap();
    sound(set.uri());

    let is_full = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&is_full);
    let server = start(listener(), move |mut stream| {
        if flag.load(Ordering::Relaxed) {
            return stream.read_exact(&mut [0; 16]);
        }
        converse(stream, &standalone)
    });
    let uri = format!("mongodb://{server}/");
    advised(&arguments, &uri, "hello fail", "look at the log of the server");
    is_full.store(false, Ordering::Relaxed);
    sound(&uri);
}

#[test]
fn a_name_without_address_or_records_is_replaced() {
    let server = mongod(listener(), standalone);
    let port = server.port();
    let right = format!("mongodb://127.0.0.1:{port}/");
    let misspelled = format!("mongodb://no-such-host.invalid:{port}/");
    mended(&misspelled, "dns.addr fail", "spelling", &right);
    let srv = "mongodb+srv://cluster.example.com/?tls=false";
    mended(srv, "dns.srv fail", "list the hosts in a mongodb:// string", &right);
}

#[test]
fn options_that_do_not_suit_the_deployment_are_removed() {
    let server = mongod(listener(), standalone);
    let right = format!("mongodb://{server}/");
    let check = |options: &str, expected, words| {
        mended(&format!("{right}?{options}"), expected, words, &right);
    };
    check("replicaSet=rs0", "topo.kind fail", "if it is the whole deployment, remove replicaSet");
    check("loadBalanced=true", "topo.kind fail", "remove loadBalanced");

    let set = Blueprint::replica_set(1).serve().unwrap();
    let words = format!("remove {server} from the seeds");
    let with_stranger = set.uri().replace("/?", &format!(",{server}/?"));
    mended(&with_stranger, "topo.kind fail", &words, set.uri());
}

#[test]
fn a_string_that_is_refused_is_corrected() {
    let server = Blueprint::standalone().user(User::new("ada", "p@ss/word")).serve().unwrap();
    let right = server.uri().replace("mongodb://", "mongodb://ada:p%40ss%2Fword@");
    let right = right.split('?').next().unwrap();
    let check = |broken: String, words| drop(mended(&broken, "uri fail", words, right));
    check(right.replace("%40ss%2F", "@ss/"), "percent-encode");
    check(format!("{right}?tlsCAFille=/ca.pem"), "write tlsCAFile");
    check(
        format!("{right}?tls=true&tlsCAFile=/no/such/file.pem"),
        "name a PEM file that can be read",
    );
    check(format!("{right}?directConnection=true&loadBalanced=true"), "set one of the two");
    check(right.replace("mongodb://", "mongodb+srv://"), "port");
}
