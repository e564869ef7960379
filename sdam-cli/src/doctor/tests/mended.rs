//! Tests, listed in a table, that apply a remedy to the servers or to the connection string.

use std::{
    io::Read as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bson::{DateTime, Document, doc};
use sdam_live::{Certificates, ServerCertificate};
use sdam_sim::users::User;

use super::{
    remedies::{advised, mended, sound},
    servers::{lagging, primary},
    *,
};

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

const ELECTION: &str = "7fffffff0000000000000001";

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
        servers::converse(stream, &standalone)
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
