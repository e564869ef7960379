//! The effect of connection string options on selections.

use std::time::Duration;

use bson::doc;
use futures::{FutureExt, StreamExt};
use sdam::{Bound, Criteria, EventName, Options, SelectionError, Topology};
use sdam_events::channel::unbounded;
use sdam_testkit::{Server, member};

use crate::harness::{Harness, hosts};

/// Starts a topology with the options of `query`.
fn start(harness: &mut Harness, number: u16, query: &str) -> Topology {
    let hosts = hosts(number);
    let options = Options::parse(&format!("mongodb://a/?{query}")).unwrap();
    harness.start(&hosts.clone(), |builder| {
        builder.options(|own| *own = options.with_seeds(hosts))
    })
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
    let topology = start(
        &mut harness,
        3,
        "readPreference=secondary&readPreferenceTags=zone:a:b",
    );
    let criteria = Criteria::read(topology.options().read_preference.clone()).unwrap();
    for _ in 0..20 {
        let selected = topology.try_select(&criteria).unwrap().unwrap();
        assert_eq!(*selected.address(), hosts[1]);
    }
}

/// L-61, B-32: the shorter of the two timeouts limits a selection, and the error names it.
#[test]
fn selections_wait_for_the_shorter_of_both_timeouts() {
    let check = |query: &str, millis, bound, text: &str| {
        let mut harness = Harness::new();
        let topology = start(&mut harness, 1, query);
        let selection = harness.begin(async move { topology.select(&Criteria::write()).await });
        harness.pass(Duration::from_millis(millis));
        let Err(SelectionError::Timeout(error)) = selection.result() else {
            unreachable!("{query}: a server was found");
        };
        assert_eq!(error.bound, bound, "{query}");
        assert_eq!(error.timeout, Duration::from_millis(millis), "{query}");
        assert_eq!(error.waited, Duration::from_millis(millis), "{query}");
        assert!(error.to_string().contains(text), "{error}");
    };
    check(
        "timeoutMS=50",
        50,
        Bound::Timeout,
        "gave up after 0.05 s (timeoutMS)",
    );
    let shorter = "gave up after 0.04 s (serverSelectionTimeoutMS)";
    for query in [
        "timeoutMS=50&serverSelectionTimeoutMS=40",
        "timeoutMS=40&serverSelectionTimeoutMS=40",
        "timeoutMS=0&serverSelectionTimeoutMS=40",
        "timeoutMS=x&serverSelectionTimeoutMS=40",
    ] {
        check(query, 40, Bound::ServerSelectionTimeout, shorter);
    }
}

/// L-61: the remaining time of an operation replaces the client's `timeoutMS`.
#[test]
fn the_timeout_of_a_call_replaces_the_timeout_ms_of_the_client() {
    let check = |call, millis, bound| {
        let mut harness = Harness::new();
        let topology = start(&mut harness, 1, "timeoutMS=50&serverSelectionTimeoutMS=80");
        let selection = harness.begin(async move {
            let call = Duration::from_millis(call);
            topology.select_within(&Criteria::write(), call).await
        });
        harness.pass(Duration::from_millis(millis));
        let Err(SelectionError::Timeout(error)) = selection.result() else {
            unreachable!("{call}: a server was found");
        };
        assert_eq!(
            (error.bound, error.waited),
            (bound, Duration::from_millis(millis))
        );
    };
    check(70, 70, Bound::Call);
    check(30, 30, Bound::Call);
    check(90, 80, Bound::ServerSelectionTimeout);
}

/// D-6: the configuration does not fit the deployment, so no server is left.
#[test]
fn the_loss_of_the_last_server_is_published() {
    let (mut harness, hosts) = (Harness::new(), hosts(1));
    harness.servers.set(&hosts[0], Server::mongos());
    let (sink, events) = unbounded();
    let topology = harness.start(&hosts, |builder| {
        builder
            .sink(sink)
            .options(|options| options.replica_set = Some("rs".into()))
    });
    assert!(topology.snapshot().description().servers().is_empty());
    drop(topology);
    harness.settle();
    let names = events.map(|event| event.kind.name()).collect::<Vec<_>>();
    let names = names.now_or_never().unwrap();
    let emptied = names
        .iter()
        .filter(|name| **name == EventName::TopologyEmptied);
    assert_eq!(emptied.count(), 1, "{names:?}");
}
