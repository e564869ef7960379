//! The effect of connection string options on selections.

use std::time::Duration;

use bson::doc;
use sdam::{Criteria, EventName, LimitSource, Options, SelectionError, Topology};
use sdam_events::channel::unbounded;
use sdam_testkit::{Server, member};

use super::harness::{Harness, hosts};
use crate::drain;

/// Starts a topology with the connection string options `query`.
fn start(harness: &mut Harness, number: u16, query: &str) -> Topology {
    let hosts = hosts(number);
    let options = Options::parse(&format!("mongodb://a/?{query}")).unwrap();
    harness.start(&hosts.clone(), |builder| builder.options(|own| *own = options.with_seeds(hosts)))
}

/// B-24: the value of a tag may contain colons, so such a tag set restricts reads like any other.
#[test]
fn reads_go_to_the_member_whose_tag_has_a_colon_in_its_value() {
    let (mut harness, hosts) = (Harness::new(), hosts(3));
    for (host, zone) in hosts.iter().zip(["a:a", "a:b", "a"]) {
        let mut reply = member(&hosts, false);
        reply.insert("tags", doc! { "zone": zone });
        harness.servers.set(host, Server::replying(&reply));
    }
    let topology = start(&mut harness, 3, "readPreference=secondary&readPreferenceTags=zone:a:b");
    let criteria = Criteria::read(topology.options().read_preference.clone()).unwrap();
    for _ in 0..20 {
        let selected = topology.try_select(&criteria).unwrap().unwrap();
        assert_eq!(*selected.address(), hosts[1]);
    }
}

/// L-61, B-32: the shorter of the two timeouts limits a selection, and the error names it. The
/// remaining time of an operation replaces the client's `timeoutMS`.
#[test]
fn selections_wait_for_the_shortest_timeout() {
    let own = (LimitSource::ServerSelectionTimeout, "(serverSelectionTimeoutMS)");
    let call = (LimitSource::Call, "(the timeout of the call)");
    let both = "timeoutMS=50&serverSelectionTimeoutMS=80";
    for (query, limit, millis, (source, text)) in [
        ("timeoutMS=50", None, 50, (LimitSource::Timeout, "(timeoutMS)")),
        ("timeoutMS=50&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=40&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=0&serverSelectionTimeoutMS=40", None, 40, own),
        ("timeoutMS=x&serverSelectionTimeoutMS=40", None, 40, own),
        (both, Some(70), 70, call),
        (both, Some(30), 30, call),
        (both, Some(90), 80, own),
    ] {
        let mut harness = Harness::new();
        let topology = start(&mut harness, 1, query);
        let selection = harness.begin(async move {
            let criteria = Criteria::write();
            match limit.map(Duration::from_millis) {
                Some(limit) => topology.select_within(&criteria, limit).await,
                None => topology.select(&criteria).await,
            }
        });
        let time = Duration::from_millis(millis);
        harness.pass(time);
        let Err(SelectionError::Timeout(error)) = selection.result() else {
            unreachable!("{query}: a server was found");
        };
        assert_eq!((error.limit_source, error.timeout), (source, time), "{query}");
        assert_eq!(error.waited, time, "{query}");
        let text = format!("gave up after 0.0{} s {text}", millis / 10);
        assert!(error.to_string().contains(&text), "{error}");
    }
}

/// D-6: a mongos does not belong to the configured replica set, so no server is left.
#[test]
fn the_loss_of_the_last_server_is_published() {
    let (mut harness, hosts) = (Harness::new(), hosts(1));
    harness.servers.set(&hosts[0], Server::mongos());
    let (sink, mut events) = unbounded();
    let topology = harness.start(&hosts, |builder| {
        builder.sink(sink).options(|options| options.replica_set = Some("rs".into()))
    });
    assert!(topology.snapshot().description().servers().is_empty());
    drop(topology);
    harness.settle();
    let events = drain(&mut events).into_iter();
    let emptied = events.filter(|event| event.kind.name() == EventName::TopologyEmptied);
    assert_eq!(emptied.count(), 1);
}
