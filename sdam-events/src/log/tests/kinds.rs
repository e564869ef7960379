//! Events of every kind that is logged.

use std::{sync::Arc, time::Duration};

use bson::doc;
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{
        CheckOutFailure, ConnectionClosedReason, ConnectionId, EventKind, Heartbeat,
        SelectionFailure,
    },
    ids::{Generation, ObjectId},
    options::{Options, Warning},
    pool::{PoolClear, PoolOptions},
    server::ServerType,
    topology::{DepartureReason, Obstacle, TopologyDescription, TopologyType},
};

use crate::test_support::{
    address, check_out_failed, check_out_started, checked_in, checked_out, closed, command,
    created, description, failed, found, not_found, opening, pool_cleared, ready, selection,
    selects, server, started, succeeded, topology_changed, waits,
};

/// Returns events of every kind that is logged, in every variant of each message.
pub(crate) fn logged() -> Vec<EventKind> {
    let mut all = topology();
    all.extend(pools());
    all.extend(connections());
    all.extend(selections());
    for name in ["ping", "saslStart"] {
        let (info, document) = command(&doc! { name: 1 });
        let duration = Duration::from_micros(1500);
        all.push(info.started(&document));
        all.push(info.succeeded(duration, &doc! { "ok": 1 }.to_vec().unwrap()));
        all.push(info.failed(duration, reset()));
    }
    all
}

pub(super) fn reset() -> Error {
    Error::new(ErrorKind::Network, Stage::Operation, "reset")
}

fn topology() -> Vec<EventKind> {
    let (server, host) = server();
    let closed = |text| EventKind::ServerClosed {
        server,
        address: address(text),
        reason: DepartureReason::WrongSetName { found: Some("rs0".into()), wanted: "wrong".into() },
    };
    let sharded =
        TopologyDescription::new(TopologyType::Sharded, [description(1, ServerType::Mongos)]);
    let connection = ConnectionId { driver: 3, server: Some(77) };
    let awaited = Heartbeat::new(server, address("a"), connection, true);
    let reply = doc! { "ok": 1.0, "id": bson::oid::ObjectId::from_bytes([1; 12]) };
    let obstacle = Obstacle::NamesDiffer {
        connected: address("localhost"),
        me: address("mongo-0"),
        error: Error::new(ErrorKind::Network, Stage::Dns, "not found"),
    };
    vec![
        EventKind::TopologyOpening,
        EventKind::TopologyClosed,
        opening(1),
        closed("[::1]:5"),
        // A Unix domain socket has no port.
        closed("/tmp/x.sock"),
        topology_changed(&TopologyDescription::default(), &sharded),
        started(1),
        EventKind::ServerHeartbeatStarted(awaited),
        succeeded(1, &reply),
        failed(1),
        EventKind::MembersIgnored { ignored: 3, limit: 10 },
        EventKind::TopologyEmptied,
        EventKind::ServerUnusable { server, address: address("mongo-0"), obstacle },
        EventKind::ConfigWarning(warning()),
        EventKind::SrvHostsIgnored {
            name: "_mongodb._tcp.db.example.com".into(),
            domain: "example.com".into(),
            hosts: [address("a.other.com"), address("b.other.com")].into(),
        },
        EventKind::SrvLookupFailed {
            name: "_mongodb._tcp.db.example.com".into(),
            failure: Error::new(ErrorKind::Network, Stage::Dns, "no answer"),
            next: Duration::from_secs(10),
        },
        EventKind::EventsDropped { total: 5 },
        EventKind::ServerSuspected {
            server,
            address: host.clone(),
            silence: Duration::from_micros(1500),
        },
        EventKind::ServerSuspicionEnded {
            server,
            address: host,
            duration: Duration::from_millis(20),
            answered: false,
        },
    ]
}

/// Returns the warning about `tls=1`.
fn warning() -> Arc<Warning> {
    let options = Options::parse("mongodb://a/?tls=1").unwrap();
    Arc::new(options.multi_threaded_warnings().remove(0))
}

/// Returns the event for clearing a pool, or a service.
fn cleared(service_id: Option<ObjectId>) -> EventKind {
    let mut clear = PoolClear::new(Generation::from_u64(1), reset());
    clear.service_id = service_id;
    pool_cleared(clear)
}

fn pools() -> Vec<EventKind> {
    let (server, address) = server();
    let created = |options| EventKind::PoolCreated {
        server,
        address: address.clone(),
        options: Arc::new(options),
    };
    let mut options = PoolOptions::default();
    options.max_idle_time = Some(Duration::from_millis(5));
    options.min_pool_size = 1;
    options.max_pool_size = 0;
    options.max_connecting = 3;
    options.wait_queue_timeout = Some(Duration::from_millis(7));
    vec![
        created(PoolOptions::default()),
        created(options),
        EventKind::PoolReady { server, address: address.clone() },
        cleared(None),
        cleared(Some(ObjectId::from_bytes([2; 12]))),
        EventKind::PoolClosed { server, address },
    ]
}

fn connections() -> Vec<EventKind> {
    use CheckOutFailure as Failure;
    use ConnectionClosedReason as Reason;
    let duration = Duration::from_micros(1500);
    let failed = |reason| check_out_failed(reason, Duration::from_millis(2));
    vec![
        created(),
        ready(duration),
        check_out_started(),
        checked_out(duration),
        checked_in(),
        closed(Reason::Stale, None),
        closed(Reason::Idle, None),
        closed(Reason::Error, Some(reset())),
        closed(Reason::PoolClosed, None),
        failed(Failure::Timeout),
        failed(Failure::PoolClosed),
        failed(Failure::ConnectionError),
    ]
}

fn selections() -> Vec<EventKind> {
    let selection = selection();
    vec![
        selects(&selection),
        waits(&selection, None),
        waits(&selection, Some(Duration::from_millis(20))),
        found(&selection, Duration::ZERO),
        not_found(&selection, SelectionFailure::Timeout, Duration::ZERO),
    ]
}
