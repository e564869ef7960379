//! Tests SRV records from a real name server: special names, and polling on every runtime and
//! without a runtime.

mod world;

use std::sync::Arc;

use futures::executor::block_on;
use sdam::ServerAddress;
use sdam_dns::DnsResolver;
use sdam_live::{Dns, Record, RecordType, or_skip};

use self::world::{TEST1, World, records};

/// Resolves the connection string for each host, and checks the result. The records of a host
/// contain a set name and a single target, which is the second string of the pair.
fn check(pairs: &[(&str, &str)]) {
    let records = pairs.iter().flat_map(|(host, target)| {
        let srv = Record::srv(&format!("_mongodb._tcp.{host}"), target, 27017);
        [srv, Record::txt(host, ["replicaSet=rs"])]
    });
    let Some(dns) = or_skip(Dns::start(records)).unwrap() else {
        return;
    };
    let resolver = DnsResolver::with_servers([dns.address()]);
    let mut backend = sdam_runtime_blocking::backend();
    backend.resolver = Some(Arc::new(resolver));
    for (host, target) in pairs {
        let uri = format!("mongodb+srv://{host}/");
        let options = block_on(sdam::resolve(&uri, &backend)).unwrap();
        assert_eq!(options.seeds, [ServerAddress::new(target, 27017)]);
        assert_eq!(options.replica_set.as_deref(), Some("rs"));
    }
}

#[test]
fn internationalized_names_keep_their_ascii_form() {
    // Names are compared in their ASCII form (N-5, N-16).
    check(&[
        ("h.xn--bcher-kva.example", "db-0.xn--bcher-kva.example"),
        ("xn--h-wga.example.com", "xn--db-0-koa.example.com"),
    ]);
}

#[test]
fn the_name_server_is_asked_for_reserved_names() {
    // Reserved names are looked up like any other (N-3, N-8).
    check(&[
        ("localhost", "test_1.localhost"),
        ("cluster.localhost", "test_1.cluster.localhost"),
        ("h.b.localhost", "db-0.b.localhost"),
        ("h.b.invalid", "db-0.b.invalid"),
        ("h.b.local", "db-0.b.local"),
    ]);
}

// The name server answers in real time, so these tests take as long as its answers. The simulated
// DNS runs all prose tests of "Polling SRV Records for mongos Discovery".

#[test]
fn prose_3_a_replaced_record_replaces_its_server() {
    // A changed record changes the servers (N-20, N-24).
    let Some(world) = World::start() else { return };
    let after = [27017, 27019];
    world.check(|dns| dns.set(records(&after)).unwrap(), &after);
}

#[test]
#[ignore = "deep: waits until a look-up is repeated"]
fn prose_6_a_look_up_that_times_out_changes_nothing() {
    // After a failed look-up, the hosts are kept (N-23).
    let Some(world) = World::start() else { return };
    let fail = |dns: &Dns| dns.sigstop().unwrap();
    let heal = |dns: &Dns| dns.sigcont().unwrap();
    world.check_failure("connectTimeoutMS=100000", fail, heal, "no answer");
}

#[test]
#[ignore = "deep: waits until a look-up is repeated"]
fn prose_7_8_a_name_that_is_gone_or_has_no_srv_record_changes_nothing() {
    // After a failed look-up, the hosts are kept (N-23).
    let Some(world) = World::start() else { return };
    for is_gone in [true, false] {
        let fail = |dns: &Dns| {
            if !is_gone {
                dns.set([Record::txt(TEST1, ["nothing"])]).unwrap();
            }
            dns.remove(TEST1, RecordType::Srv).unwrap();
        };
        let query = "connectTimeoutMS=2000000";
        world.check_failure(query, fail, |_| {}, "the name has no SRV record");
    }
}
