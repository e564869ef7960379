//! Names that resolvers treat specially, with a real name server.

use std::sync::Arc;

use futures::executor::block_on;
use sdam::ServerAddress;
use sdam_dns::DnsResolver;
use sdam_live::{Dns, Record, or_skip};

/// Resolves the connection string of each host, whose records contain this single target and a set
/// name.
fn check(pairs: &[(&str, &str)]) {
    let records = pairs.iter().flat_map(|(host, target)| {
        let srv = Record::srv(&format!("_mongodb._tcp.{host}"), target, 27017);
        [srv, Record::txt(host, ["replicaSet=rs"])]
    });
    let Some(dns) = or_skip(Dns::start(records)).unwrap() else {
        return;
    };
    let resolver = DnsResolver::with_servers([dns.address()]);
    let io = sdam_runtime_blocking::io().with_resolver(Arc::new(resolver));
    for (host, target) in pairs {
        let uri = format!("mongodb+srv://{host}/");
        let options = block_on(sdam::resolve(&uri, &io)).unwrap();
        assert_eq!(options.seeds, [ServerAddress::new(target, 27017)]);
        assert_eq!(options.replica_set.as_deref(), Some("rs"));
    }
}

#[test]
fn internationalized_names_keep_their_ascii_form() {
    // N-5, N-16
    check(&[
        ("h.xn--bcher-kva.example", "db-0.xn--bcher-kva.example"),
        ("xn--h-wga.example.com", "xn--db-0-koa.example.com"),
    ]);
}

#[test]
fn the_name_server_is_asked_for_reserved_names() {
    // N-3, N-8
    check(&[
        ("localhost", "test_1.localhost"),
        ("cluster.localhost", "test_1.cluster.localhost"),
        ("h.b.localhost", "db-0.b.localhost"),
        ("h.b.invalid", "db-0.b.invalid"),
        ("h.b.local", "db-0.b.local"),
    ]);
}
