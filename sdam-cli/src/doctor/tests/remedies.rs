//! Tests that apply the remedy for a fault, and check that the doctor then finds no problem.

use std::{
    io::{Read as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use bson::{DateTime, Document, doc};
use sdam_live::{Certificates, ServerCertificate};
use sdam_sim::users::User;

use super::*;

const ELECTION: &str = "7fffffff0000000000000001";

/// Checks that the deployment at `broken` has the problem `expected`, and that a remedy for it
/// contains `words`. Returns the remedies.
fn advised(arguments: &Arguments, broken: &str, expected: &str, words: &str) -> Vec<String> {
    let seen = observe(arguments, broken);
    let exit = match expected.rsplit_once(' ') {
        Some((_, "warn")) => Exit::WARNINGS,
        _ => Exit::FAILURES,
    };
    let document = check_formats(arguments, broken, &seen, exit);
    let (problem, finding) = first(&document);
    assert_eq!(problem, expected, "{document:#}");
    let remedies = strings(&finding["remedies"]);
    assert!(remedies.iter().any(|own| own.contains(words)), "{words:?} in {finding:#}");
    remedies.into_iter().map(str::to_owned).collect()
}

/// Checks that a remedy for the deployment at `broken` contains `words`, and that the deployment at
/// `mended` has no problem.
fn mended(broken: &str, expected: &str, words: &str, mended: &str) {
    let _ = advised(&arguments(), broken, expected, words);
    sound(mended);
}

fn sound(uri: &str) {
    check(uri, "none", Exit::SUCCESS, "");
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
}

#[test]
fn a_warning_about_an_option_is_not_the_first_problem_if_there_is_a_failure() {
    let closed = Port::reserve().unwrap();
    let port = closed.address().port();
    let uri = format!("mongodb://127.0.0.1:{port}/?localTresholdMS=20");
    let _ = advised(&arguments(), &uri, "tcp fail", "start the server, or correct the port");
}

#[test]
fn a_wrong_port_is_corrected() {
    let server = Server::mongod(listener(), standalone);
    let right = format!("mongodb://{}/", server.address());
    let none = Port::reserve().unwrap();
    let port = none.address().port();
    let closed = format!("mongodb://127.0.0.1:{port}/");
    mended(&closed, "tcp fail", "correct the port", &right);
    for answer in
        ["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "SSH-2.0-OpenSSH_9.2p1\r\n"]
    {
        let other = Server::start(listener(), move |mut stream| {
            stream.read_exact(&mut [0; 16])?;
            stream.write_all(answer.as_bytes())
        });
        let uri = format!("mongodb://{}/", other.address());
        mended(&uri, "hello fail", "correct the port", &right);
    }
}

#[test]
fn tls_is_turned_on_or_off_as_the_server_has_it() {
    let certificates = Certificates::create().unwrap();
    let options = certificates.options();
    let with = Server::tls(&certificates, ServerCertificate::Valid);
    let (plain, tls) = uris(with.address(), &options);
    mended(&plain, "hello fail", "add tls=true", &tls);
    let without = Server::mongod(listener(), standalone);
    let (plain, tls) = uris(without.address(), &options);
    mended(&tls, "tls.handshake fail", "remove tls=true", &plain);
}

/// Returns two connection strings for `address`, one without options and one with `options`.
fn uris(address: std::net::SocketAddr, options: &str) -> (String, String) {
    let plain = format!("mongodb://{address}/");
    let with = format!("{plain}?{options}");
    (plain, with)
}

#[test]
fn a_missing_client_certificate_is_not_taken_for_a_server_without_tls() {
    let certificates = Certificates::create().unwrap();
    let server = tls_for_clients_with_certificate(&certificates);
    let (_, uri) = uris(server.address(), &certificates.options());
    let file = |path: std::path::PathBuf| format!("{uri}&tlsCertificateKeyFile={}", path.display());
    let right = file(certificates.client());
    for wrong in [uri.clone(), file(certificates.unknown_client())] {
        let remedies =
            advised(&arguments(), &wrong, "tls.handshake fail", "set tlsCertificateKeyFile");
        assert!(remedies.iter().all(|own| !own.contains("remove tls=true")), "{remedies:?}");
    }
    sound(&right);
}

#[test]
fn the_file_that_makes_a_certificate_trusted_is_named() {
    let certificates = Certificates::create().unwrap();
    let trusting = |server: &Server, file: std::path::PathBuf| {
        format!("mongodb://{}/?tls=true&tlsCAFile={}", server.address(), file.display())
    };
    let check = |certificate, words, file| {
        let server = Server::tls(&certificates, certificate);
        let broken = trusting(&server, certificates.authority());
        mended(&broken, "tls.verify fail", words, &trusting(&server, file));
    };
    let own = certificates.server(ServerCertificate::SelfSigned);
    check(ServerCertificate::SelfSigned, "or the certificate itself", own);
    let words = "add that authority's certificate";
    check(ServerCertificate::UnknownIssuer, words, certificates.other_authority());
}

#[test]
fn a_name_that_the_certificate_has_is_used() {
    let certificates = Certificates::create().unwrap();
    let server = Server::tls(&certificates, ServerCertificate::WrongName);
    let (_, broken) = uris(server.address(), &certificates.options());
    let words = "connect by a name that it has";
    let _ = advised(&arguments(), &broken, "tls.verify fail", words);
    let mut arguments = arguments();
    let name = ServerAddress::new("other.example", 27017);
    let place = ServerAddress::parse(&server.address().to_string()).unwrap();
    arguments.target.translate = Some([(name, place)].into_iter().collect());
    let uri = format!("mongodb://other.example/?{}", certificates.options());
    check_with(&arguments, &uri, "none", Exit::SUCCESS, "");
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
    let replies = [0, 1].map(|index| {
        let own = [names[index].clone()];
        let mut reply = primary(&own, 1, "7fffffff0000000000000001");
        reply.insert("setName", format!("rs{index}"));
        reply
    });
    let [first, second] = replies;
    let _one = Server::mongod(one, move || first.clone());
    let _other = Server::mongod(other, move || second.clone());
    let remedies = advised(&arguments(), &uri, "topo.kind fail", "keep the seeds of one set only");
    let (_, advice) = remedies[0].split_once("; for rs0: ").unwrap();
    assert_eq!(advice, format!("mongodb://{}/?replicaSet=rs0", names[0]));
    sound(advice);
}

#[test]
fn members_whose_names_lead_nowhere_are_translated_or_one_is_connected_to_alone() {
    let set = Listen::new().name(named).serve(Blueprint::replica_set(1)).unwrap();
    let (_, place) = set.places()[0].clone();
    let uri = format!("mongodb://{place}/?replicaSet=rs0");
    let remedies = advised(&arguments(), &uri, "topo.members fail", "--translate");
    assert!(remedies[0].contains("directConnection=true"), "{remedies:?}");
    assert_eq!(remedies.len(), 1, "{remedies:?}");
    let (_, document) = run_json(&arguments(), &uri);
    assert!(!document.to_string().contains("in the connection string"), "{document:#}");
    check_with(&translated(&set), set.uri(), "none", Exit::SUCCESS, "");
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
    let _ = advised(&arguments, set.uri(), "topo.members fail", "in --translate");
    check_with(&translated(&set), set.uri(), "none", Exit::SUCCESS, "");
}

#[test]
fn a_member_that_is_down_is_started_before_names_are_doubted() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let secondary = 2;
    set.kill(secondary).unwrap();
    let uri = format!("mongodb://{}/?replicaSet=rs0", set.places()[0].1);
    let remedies = advised(&arguments(), &uri, "topo.members fail", "start the server");
    assert!(remedies[0].starts_with("start the server"), "{remedies:?}");
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
    let checks = document["checks"].as_array().unwrap();
    let select = checks.iter().find(|check| check["id"] == "select").unwrap();
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
    let checks = document["checks"].as_array().unwrap();
    let write = checks.iter().find(|check| check["id"] == "write").unwrap();
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
    let server = Server::mongod(listener(), standalone);
    let closed = Port::reserve().unwrap();
    let port = closed.address().port();
    let right = format!("mongodb://{}/", server.address());
    let broken = format!("{right}?proxyHost=127.0.0.1&proxyPort={port}");
    mended(&broken, "tcp fail", "proxyPort", &right);
}

#[test]
fn writes_are_tested_on_request_and_need_the_right_to_write() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let mut arguments = arguments();
    arguments.write = Some(Collection::parse("app.canary").unwrap());
    let (exit, document) = run_json(&arguments, set.uri());
    let checks = document["checks"].as_array().unwrap();
    let write = checks.iter().find(|check| check["id"] == "write").unwrap();
    assert_eq!((exit, &write["status"]), (Exit::SUCCESS, &Value::from("ok")), "{write:#}");
    // Without a primary, an earlier check fails, so the doctor skips the write test.
    let set = Blueprint::replica_set(1).serve().unwrap();
    set.step_down().unwrap();
    arguments.timeout = Some(Duration::from_millis(200));
    let (_, document) = run_json(&arguments, set.uri());
    let checks = document["checks"].as_array().unwrap();
    let write = checks.iter().find(|check| check["id"] == "write").unwrap();
    assert_eq!(write["status"], "skip", "{write:#}");
}

/// Starts a set whose members send the replies that `broken` returns, and checks the suggested
/// remedy. The members then send the replies that `right` returns, and the doctor must find no
/// problem. Both functions return one reply for each member.
fn repaired(
    expected: &str,
    words: &str,
    broken: impl Fn(&[String]) -> Vec<Document>,
    right: impl Fn(&[String]) -> Vec<Document>,
) {
    let listeners = [listener(), listener()];
    let hosts = listeners.each_ref().map(|own| own.local_addr().unwrap().to_string());
    let is_repaired = Arc::new(AtomicBool::new(false));
    let replies = broken(&hosts).into_iter().zip(right(&hosts));
    let servers: Vec<_> = listeners
        .into_iter()
        .zip(replies)
        .map(|(listener, (broken, right))| {
            let is_repaired = Arc::clone(&is_repaired);
            Server::mongod(listener, move || {
                let is_repaired = is_repaired.load(Ordering::Relaxed);
                if is_repaired { right.clone() } else { broken.clone() }
            })
        })
        .collect();
    let uri = format!("mongodb://{}/?replicaSet=rs0", hosts[..servers.len()].join(","));
    let _ = advised(&arguments(), &uri, expected, words);
    is_repaired.store(true, Ordering::Relaxed);
    sound(&uri);
}

/// Returns the replies of a healthy set with a primary and a secondary.
fn healthy(hosts: &[String]) -> Vec<Document> {
    let [secondary, primary] = lagging(hosts, 0);
    vec![primary, secondary]
}

/// Returns a function that creates the replies of a healthy set, with the secondary's reply
/// modified by `change`.
fn secondary(change: impl Fn(&[String], &mut Document)) -> impl Fn(&[String]) -> Vec<Document> {
    move |hosts| {
        let mut replies = healthy(hosts);
        change(hosts, &mut replies[1]);
        replies
    }
}

#[test]
fn members_that_do_not_serve_as_they_should_do_so_later() {
    let recovering = secondary(|_, reply| drop(reply.insert("secondary", false)));
    repaired("topo.members warn", "wait for SECONDARY", recovering, healthy);
    let behind = |hosts: &[String]| {
        let [secondary, primary] = lagging(hosts, 40_000);
        vec![primary, secondary]
    };
    repaired("lag warn", "rs.printSecondaryReplicationInfo()", behind, healthy);
    let second_primary = secondary(|hosts, reply| {
        let reversed = [hosts[1].clone(), hosts[0].clone()];
        *reply = primary(&reversed, 1, "7fffffff0000000000000002");
    });
    repaired("topo.primary fail", "run the check again after 10 s", second_primary, healthy);
    let other_primary = secondary(|hosts, reply| drop(reply.insert("primary", &hosts[1])));
    repaired("topo.primary warn", "look at rs.status()", other_primary, healthy);
    let other_version = secondary(|_, reply| drop(reply.insert("setVersion", 2)));
    repaired("topo.primary warn", "look at rs.status()", other_version, healthy);
    let without_primary = |hosts: &[String]| {
        let mut replies = healthy(hosts);
        let demoted = doc! { "ismaster": false, "isWritablePrimary": false, "secondary": true };
        replies[0].extend(demoted);
        for reply in &mut replies {
            reply.remove("primary");
        }
        replies
    };
    repaired("topo.primary fail", "run the check again after 15 s", without_primary, healthy);
}

#[test]
fn a_server_is_updated_initiated_or_synchronized() {
    let check = |expected, words, change: fn(&mut Document)| {
        let right = |hosts: &[String]| vec![primary(&hosts[..1], 1, ELECTION)];
        let broken = |hosts: &[String]| {
            let mut replies = right(hosts);
            change(&mut replies[0]);
            replies
        };
        repaired(expected, words, broken, right);
    };
    check("hello fail", "update the older of the two", |reply| {
        reply.insert("maxWireVersion", 2);
    });
    check("hello fail", "rs.initiate()", |reply| {
        reply.remove("setName");
        reply.extend(doc! { "ismaster": false, "isWritablePrimary": false, "isreplicaset": true });
    });
    for seconds in [90, -90] {
        let offset = seconds * 1_000;
        let right = |hosts: &[String]| {
            let mut reply = primary(&hosts[..1], 1, ELECTION);
            reply.remove("localTime");
            vec![reply]
        };
        let broken = |hosts: &[String]| {
            let mut replies = right(hosts);
            let time = DateTime::from_millis(DateTime::now().timestamp_millis() + offset);
            replies[0].insert("localTime", time);
            replies
        };
        repaired("clock warn", "check NTP on both", broken, right);
    }
}

#[test]
fn a_server_that_hangs_or_closes_connections_answers_later() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    set.freeze(0).unwrap();
    let mut arguments = arguments();
    arguments.timeout = Some(Duration::from_secs(1));
    let _ = advised(&arguments, set.uri(), "hello fail", "look at the server and its log");
    set.thaw(0).unwrap();
    sound(set.uri());

    let is_full = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&is_full);
    let server = Server::start(listener(), move |mut stream| {
        if flag.load(Ordering::Relaxed) {
            return stream.read_exact(&mut [0; 16]);
        }
        converse(stream, &standalone)
    });
    let uri = format!("mongodb://{}/", server.address());
    let _ = advised(&arguments, &uri, "hello fail", "look at the log of the server");
    is_full.store(false, Ordering::Relaxed);
    sound(&uri);
}

#[test]
fn a_certificate_is_issued_again() {
    let certificates = Certificates::create().unwrap();
    let right = Server::tls(&certificates, ServerCertificate::Valid);
    let uri =
        |server: &Server| format!("mongodb://{}/?{}", server.address(), certificates.options());
    for (certificate, words) in [
        (ServerCertificate::Expired, "renew it"),
        (ServerCertificate::NotYetValid, "issue it again"),
        (ServerCertificate::WrongName, "issue it for this one as well"),
    ] {
        let server = Server::tls(&certificates, certificate);
        mended(&uri(&server), "tls.verify fail", words, &uri(&right));
    }
    let insecure = format!("mongodb://{}/?tls=true&tlsInsecure=true", right.address());
    let words = "remove tlsAllowInvalidCertificates or tlsInsecure, and set tlsCAFile";
    mended(&insecure, "uri warn", words, &uri(&right));
}

#[test]
fn a_name_without_address_or_records_is_replaced() {
    let server = Server::mongod(listener(), standalone);
    let port = server.address().port();
    let right = format!("mongodb://127.0.0.1:{port}/");
    let misspelled = format!("mongodb://no-such-host.invalid:{port}/");
    mended(&misspelled, "dns.addr fail", "spelling", &right);
    let srv = "mongodb+srv://cluster.example.com/?tls=false";
    mended(srv, "dns.srv fail", "list the hosts in a mongodb:// string", &right);
}

#[test]
fn options_that_do_not_suit_the_deployment_are_removed() {
    let server = Server::mongod(listener(), standalone);
    let right = format!("mongodb://{}/", server.address());
    let check = |options: &str, expected, words| {
        mended(&format!("{right}?{options}"), expected, words, &right);
    };
    check("replicaSet=rs0", "topo.kind fail", "if it is the whole deployment, remove replicaSet");
    check("loadBalanced=true", "topo.kind fail", "remove loadBalanced");

    let set = Blueprint::replica_set(1).serve().unwrap();
    let words = format!("remove {} from the seeds", server.address());
    let with_stranger = set.uri().replace("/?", &format!(",{}/?", server.address()));
    mended(&with_stranger, "topo.kind fail", &words, set.uri());
}

#[test]
fn a_string_that_is_refused_is_corrected() {
    let server = Blueprint::standalone().user(User::new("ada", "p@ss/word")).serve().unwrap();
    let right = server.uri().replace("mongodb://", "mongodb://ada:p%40ss%2Fword@");
    let right = right.split('?').next().unwrap();
    let check = |broken: String, words| {
        let seen = observe(&arguments(), &broken);
        let document = check_formats(&arguments(), &broken, &seen, Exit::CONFIGURATION);
        let (problem, finding) = first(&document);
        assert_eq!(problem, "uri fail", "{document:#}");
        assert!(strings(&finding["remedies"]).join("; ").contains(words), "{finding:#}");
        sound(right);
    };
    check(right.replace("%40ss%2F", "@ss/"), "percent-encode");
    check(format!("{right}?tlsCAFille=/ca.pem"), "write tlsCAFile");
    check(
        format!("{right}?tls=true&tlsCAFile=/no/such/file.pem"),
        "name a PEM file that can be read",
    );
    check(format!("{right}?directConnection=true&loadBalanced=true"), "set one of the two");
    check(right.replace("mongodb://", "mongodb+srv://"), "port");
}
