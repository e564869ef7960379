//! The pools of selectable servers.

use std::{collections::BTreeSet, time::Duration};

use bson::{Document, doc};
use sdam::{EventKind, EventName};
use sdam_events::channel::unbounded;
use sdam_testkit::Server;

use crate::harness::{Harness, hosts};

/// Builds the reply of a member of the set `rs` with these role fields.
fn member(role: Document) -> Document {
    let mut reply = doc! {
        "ok": 1, "setName": "rs", "minWireVersion": 0, "maxWireVersion": 17,
        "hosts": ["db.lan:20000", "db.lan:20001"], "passives": ["db.lan:20003"],
        "arbiters": ["db.lan:20002"],
    };
    reply.extend(role);
    reply
}

/// Returns the indexes of the servers whose pools become ready with these replies.
fn ready(replies: &[Document], single: bool) -> BTreeSet<usize> {
    let hosts = hosts(u16::try_from(replies.len()).unwrap());
    let mut harness = Harness::new();
    for (host, reply) in hosts.iter().zip(replies) {
        harness.servers.set(host, Server::replying(reply));
    }
    let (sink, mut events) = unbounded();
    let topology = harness.start(&hosts, |builder| {
        builder
            .options(|options| {
                options.direct_connection = Some(single);
                options.replica_set = (!single).then(|| "rs".into());
            })
            .sink(sink.interested_in(EventName::PoolReady.into()))
    });
    harness.pass(Duration::from_secs(30));
    assert_eq!(
        topology.snapshot().description().servers().len(),
        hosts.len()
    );
    let mut ready = BTreeSet::new();
    while let Some(event) = events.try_next() {
        let EventKind::PoolReady { address, .. } = event.kind else {
            unreachable!("{event:?}");
        };
        let place = hosts.iter().position(|host| *host == address).unwrap();
        assert!(ready.insert(place), "{address} is ready twice");
    }
    ready
}

/// F-60: the pools of data-bearing servers become ready; in a topology of type Single, the pool of
/// any server that answers.
#[test]
fn pools_of_data_bearing_servers_and_of_a_single_server_become_ready() {
    let primary = member(doc! { "ismaster": true });
    let secondary = member(doc! { "secondary": true });
    let arbiter = member(doc! { "arbiterOnly": true });
    let recovering = member(doc! {});
    let set = [primary, secondary, arbiter, recovering];
    assert_eq!(ready(&set, false), [0, 1].into());
    let ghost = doc! { "ok": 1, "isreplicaset": true, "minWireVersion": 0, "maxWireVersion": 17 };
    let standalone = doc! { "ok": 1, "minWireVersion": 0, "maxWireVersion": 17 };
    for reply in set.into_iter().chain([ghost, standalone]) {
        assert_eq!(
            ready(std::slice::from_ref(&reply), true),
            [0].into(),
            "{reply:?}"
        );
    }
    let broken = doc! { "ok": 0, "errmsg": "not today", "code": 1 };
    assert_eq!(ready(&[broken], true), [].into());
}
