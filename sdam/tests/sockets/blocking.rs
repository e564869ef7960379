//! Tests blocking mode on real sockets, with simulated deployments on loopback.

use std::time::Instant;

use sdam::{BlockingTopology, snapshot::ObjectId};
use sdam_sim::{
    Action, User,
    action::{FailCommand, Mode, Target},
};

use super::*;

#[test]
fn a_string_of_either_kind_is_resolved_and_served_also_within_an_executor() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let error = BlockingTopology::builder("mongodb+srv://a.example.com:1").unwrap_err();
    assert!(error.kind() == sdam::ErrorKind::Invalid, "{error}");
    let selected = block_on(async {
        let builder = BlockingTopology::builder(set.uri()).unwrap();
        builder.blocking().unwrap().select(&Criteria::write()).unwrap()
    });
    let status = set.status().unwrap();
    assert_eq!(*selected.address(), status.primary().unwrap().address);
}

#[test]
fn the_events_of_requested_checks_and_of_the_end_have_the_id_that_was_chosen() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let (sink, events) = unbounded();
    let id = ObjectId::from_bytes(*b"twelve bytes");
    let builder = BlockingTopology::builder(set.uri()).unwrap().sink(sink).id(id);
    let mut topology = builder.blocking().unwrap();
    topology.scan();
    let description = topology.description();
    let chosen = description.primary().unwrap().id;
    topology.check(chosen);
    assert_eq!(topology.id(), id);
    topology.close();
    let error = topology.select(&Criteria::write()).unwrap_err();
    assert!(error.is_closed(), "{error}");
    drop(topology);
    let events: Vec<_> = block_on(events.collect());
    assert!(events.iter().all(|event| event.topology == id));
    for server in description.servers() {
        let is_check = |kind: &EventKind| {
            matches!(kind, EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
                if heartbeat.server == server.id)
        };
        let checks = events.iter().filter(|event| is_check(&event.kind)).count();
        assert_eq!(checks, if server.id == chosen { 2 } else { 1 });
    }
    let last = events.last().map(|event| event.kind.name());
    assert_eq!(last, Some(EventName::TopologyClosed));
}

#[test]
fn a_frozen_proxy_times_out_and_a_thawed_one_leads_to_the_servers() {
    let Some(socks) = or_skip(Socks::start()).unwrap() else {
        return;
    };
    let set = Blueprint::replica_set(1).serve().unwrap();
    let (host, port) = (socks.address().ip(), socks.address().port());
    let uri = format!("{}&proxyHost={host}&proxyPort={port}&connectTimeoutMS=300", set.uri());
    let start = || BlockingTopology::builder(&uri).unwrap().blocking().unwrap();
    let mut topology = start();
    socks.sigstop().unwrap();
    topology.select(&Criteria::write()).unwrap_err();
    let error = topology.description().servers()[0].error.clone().unwrap();
    assert_eq!(error.stage(), Stage::Proxy);
    assert!(error.is_timeout(), "{error}");
    assert!(error.message().ends_with("the proxy did not answer in time"));
    socks.sigcont().unwrap();
    start().select(&Criteria::write()).unwrap();
}

/// Starts a topology, and returns it with the primary's pool of at most `size` connections.
fn start(set: &Served, size: u32, options: &str) -> (BlockingTopology<Pool>, Pool) {
    let uri = format!("{}&maxPoolSize={size}&{options}", set.uri());
    let builder = BlockingTopology::builder(&uri).unwrap().pools(Pools::new());
    let mut topology = builder.blocking().unwrap();
    let server = topology.select(&Criteria::write()).unwrap();
    (topology, server.pool().clone())
}

fn ping(pool: &Pool) -> Result<(), Error> {
    let ping = rawdoc! { "ping": 1, "$db": "admin" };
    block_on(async {
        let mut connection = pool.check_out().await?;
        let reply = connection.run_command(ping.as_bytes(), Some(PATIENCE));
        reply.await?;
        Ok(())
    })
}

fn wait_for_waiters(pool: &Pool, waiting: usize) {
    let deadline = Instant::now() + PATIENCE;
    while pool.stats().waiting != waiting {
        assert!(Instant::now() < deadline, "{pool:?}");
        thread::yield_now();
    }
}

/// Checks that no check-out is waiting, and that the pool has kept its single connection.
fn assert_survived(pool: &Pool) {
    let stats = pool.stats();
    let now = (stats.idle, stats.in_use, stats.waiting, stats.opened);
    assert_eq!(now, (1, 0, 0, 1), "{stats:?}");
}

#[test]
fn a_pool_authenticates_on_blocking_sockets() {
    // A pool authenticates its connections after the handshake (O-11, O-12).
    let user = User::new("ada", "pencil");
    let set = Blueprint::replica_set(1).user(user).serve().unwrap();
    let uri = set.uri().replace("//", "//ada:pencil@");
    let builder = BlockingTopology::builder(&uri).unwrap().authenticate().unwrap();
    let builder = builder.pools(Pools::new());
    let mut topology = builder.blocking().unwrap();
    let server = topology.select(&Criteria::write()).unwrap();
    ping(server.pool()).unwrap();
}

#[test]
fn threads_that_share_one_connection_are_all_served() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let (_topology, pool) = start(&set, 1, "");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..200).for_each(|_| ping(&pool).unwrap()));
        }
    });
    assert_survived(&pool);
}

/// In blocking mode, timers block their thread, so a waiting thread must look at the queue again
/// before its own timeout has passed.
#[test]
fn a_waiting_thread_gets_the_connection_before_its_time_is_over() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let (_topology, pool) = start(&set, 1, "waitQueueTimeoutMS=60000");
    let held = block_on(pool.check_out()).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let begun = Instant::now();
            ping(&pool).unwrap();
            begun.elapsed()
        });
        wait_for_waiters(&pool, 1);
        drop(held);
        let elapsed = waiter.join().unwrap();
        assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
    });
    assert_survived(&pool);
}

#[test]
fn a_thread_that_is_busy_opening_a_connection_is_not_handed_another_one() {
    // A thread that is opening a connection could not take a returned connection, for which another
    // thread is waiting.
    let set = Blueprint::replica_set(1).serve().unwrap();
    let limits = "waitQueueTimeoutMS=60000&connectTimeoutMS=600000";
    let (_topology, pool) = start(&set, 2, limits);
    let held = block_on(pool.check_out()).unwrap();
    let mut fail = FailCommand::default();
    fail.mode = Mode::AlwaysOn;
    fail.commands = vec!["hello".into(), "isMaster".into()];
    fail.block = Some(Duration::from_secs(600));
    set.apply(&Action::FailPoint(Target::Primary, Some(fail))).unwrap();
    thread::scope(|scope| {
        let opening = scope.spawn(|| ping(&pool));
        wait_for_waiters(&pool, 1);
        let waiting = scope.spawn(|| ping(&pool));
        wait_for_waiters(&pool, 2);
        drop(held);
        let served = waiting.join().unwrap();
        let stats = pool.stats();
        set.kill(Target::Primary).unwrap();
        served.unwrap();
        assert_eq!((stats.idle, stats.pending), (1, 1), "{stats:?}");
        opening.join().unwrap().unwrap_err();
    });
}

#[test]
fn threads_get_typed_errors_of_a_lost_server_of_a_paused_pool_and_of_a_closed_one() {
    // Lost connections, paused pools and closed pools cause different errors (I-15, F-68, F-68b).
    let set = Blueprint::replica_set(1).serve().unwrap();
    let (mut topology, pool) = start(&set, 1, "");
    let address = pool.address().clone();
    ping(&pool).unwrap();
    set.kill(set.primary().unwrap().unwrap()).unwrap();
    let lost = ping(&pool).unwrap_err();
    assert!(lost.is_network(), "{lost}");
    let paused = ping(&pool).unwrap_err();
    assert!(paused.is_retryable_pool(), "{paused}");
    topology.close();
    let closed = Error::pool_closed(&address);
    assert_eq!(ping(&pool), Err(closed));
    let stats = pool.stats();
    assert_eq!((stats.idle, stats.in_use, stats.waiting), (0, 0, 0));
}
