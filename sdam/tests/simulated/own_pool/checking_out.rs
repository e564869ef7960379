//! Check-outs from pools, with and without a worker, and the options of pools.

use std::{future::poll_fn, sync::atomic::AtomicUsize};

use sdam::pool::PoolOptions;
use sdam_transport::{spawn::yield_now, wire::OpMsg};

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn start(sim: &Sim, options: &str) -> Topology<Pool> {
    let uri = format!("{}&{options}", sim.uri());
    builder(&uri).start(sim.runtime()).unwrap()
}

/// I-12, F-71: a refused handshake cancels the check in progress, which would otherwise wait up to
/// 10 s for the next change.
#[test]
fn a_server_that_refused_a_handshake_is_found_again_when_it_may_be_checked() {
    let sim = simulation(9);
    let topology = start(&sim, "");
    sim.block_on(async {
        primary(&topology).await;
        pass(&sim, Duration::from_secs(2)).await;
        let mut fail = fail_command(&["hello", "isMaster"], Mode::Times(1));
        fail.error_code = Some(1);
        sim.apply(&Action::FailPoint(Target::Primary, Some(fail))).unwrap();
        let refused = ping_primary(&topology).await.unwrap_err();
        assert_eq!(refused.code(), Some(1));
        let lost = sim.now();
        ping_primary(&topology).await.unwrap();
        let took = sim.now().since(lost);
        assert!(took < Duration::from_secs(1), "{took:?}");
        topology.close().await;
    });
}

/// B-30, CMAP prose tests 1 to 4: the pool options come from the connection string, and a sink
/// receives them in events.
#[test]
fn all_pools_have_the_options_of_the_connection_string() {
    let sim = simulation(11);
    let options =
        "maxPoolSize=7&minPoolSize=3&maxIdleTimeMS=5&maxConnecting=4&waitQueueTimeoutMS=6";
    let (topology, events) = observed(&sim, options, Interest::POOLS);
    let created: Vec<_> = sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        topology.close().await;
        let created = events.filter_map(async |event| match event.kind {
            EventKind::PoolCreated { options, .. } => Some(options),
            _ => None,
        });
        let created: Vec<_> = created.collect().await;
        assert!(created.iter().all(|options| **options == *pool.options()));
        created
    });
    let mut expected = PoolOptions::default();
    expected.max_pool_size = 7;
    expected.min_pool_size = 3;
    expected.max_idle_time = Some(Duration::from_millis(5));
    expected.max_connecting = 4;
    expected.wait_queue_timeout = Some(Duration::from_millis(6));
    let created: Vec<_> = created.iter().map(|options| &**options).collect();
    assert_eq!(created, [&expected; 3]);
}

#[test]
fn pools_have_the_options_of_their_topology_or_those_of_their_factory() {
    // Values set in code have precedence over the connection string (B-38).
    let sim = simulation(11);
    let start = |pools: Pools| {
        let builder = Topology::builder(&format!("{}&maxPoolSize=9", sim.uri())).unwrap();
        let builder = builder.options(|options| options.pool.max_pool_size = 7);
        builder.pools(pools).start(sim.runtime())
    };
    let size = |pools: Pools| {
        let topology = start(pools).unwrap();
        sim.block_on(async { primary(&topology).await.pool().options().max_pool_size })
    };
    assert_eq!(size(Pools::new()), 7);
    let mut own = PoolOptions::default();
    own.max_pool_size = 2;
    assert_eq!(size(Pools::new().with_options(own.clone())), 2);
    own.min_pool_size = 3;
    assert_eq!(start(Pools::new().with_options(own)).unwrap_err().option(), "minPoolSize");
}

#[test]
fn a_check_out_that_is_dropped_does_not_end_the_attempt_that_it_has_caused() {
    // The connection attempt of a dropped check-out continues (P-9).
    let sim = simulation(4);
    let topology = start(&sim, "connectTimeoutMS=5000");
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        let mut dropped = Box::pin(pool.check_out());
        assert!(poll_immediate(&mut dropped).await.is_none());
        while pool.stats().pending == 0 {
            yield_now().await;
        }
        drop(dropped);
        pass(&sim, Duration::from_secs(1)).await;
        let stats = pool.stats();
        assert_eq!((stats.opened, stats.idle), (1, 1), "{stats:?}");
        ping_primary(&topology).await.unwrap();
        assert_eq!(pool.stats().opened, 1, "the connection was reused");
        topology.close().await;
    });
}

#[test]
fn idle_connections_expire_and_the_minimum_is_kept() {
    // The worker closes expired connections and maintains `minPoolSize` (P-20, P-30).
    let sim = simulation(7);
    let topology = start(&sim, "minPoolSize=2&maxIdleTimeMS=60000");
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        pass(&sim, Duration::from_secs(1)).await;
        assert_eq!(pool.stats().idle, 2, "{pool:?}");
        let held = join_all((0..6).map(|_| pool.check_out())).await;
        drop(held);
        assert_eq!(pool.stats().idle, 6, "{pool:?}");
        pass(&sim, Duration::from_secs(90)).await;
        let stats = pool.stats();
        assert_eq!((stats.idle, stats.closed), (2, 6), "{stats:?}");
        topology.close().await;
    });
}

#[test]
fn closing_does_not_wait_for_a_server_that_does_not_answer_a_new_connection() {
    // Closing does not wait for a server that does not answer on a new connection (P-43).
    let sim = simulation(9);
    let topology = start(&sim, "connectTimeoutMS=0");
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        block(&sim, &["hello", "isMaster"], Mode::AlwaysOn, LONG);
        let mut waiting = pin!(pool.check_out());
        assert!(poll_immediate(&mut waiting).await.is_none());
        while pool.stats().pending == 0 {
            yield_now().await;
        }
        let before = sim.now();
        topology.close().await;
        assert!(sim.now().since(before) < Duration::from_secs(1));
        let closed = Error::pool_closed(pool.address());
        assert_eq!(waiting.await.unwrap_err(), closed);
    });
    assert_eq!((sim.tasks(), sim.connections()), (0, 0));
}

#[test]
fn an_idle_pool_never_wakes_up() {
    // Without `maxIdleTimeMS`, an idle pool that holds `minPoolSize` connections never wakes up
    // (P-33).
    let sim = simulation(10);
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let topology = start_changed(&sim, "minPoolSize=2", move |mut task| {
        let polls = Arc::clone(&counted);
        let counting = poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            task.poll_unpin(cx)
        });
        Task::new("sdam-pool", counting)
    });
    sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        join_all((0..5).map(|_| ping_primary(&topology))).await;
        pass(&sim, Duration::from_secs(10)).await;
        let before = polls.load(Ordering::Relaxed);
        assert!(before > 0 && pool.stats().idle >= 2);
        pass(&sim, Duration::from_secs(3600)).await;
        // Operations on idle connections do not involve the pool's task either.
        ping_primary(&topology).await.unwrap();
        assert_eq!(polls.load(Ordering::Relaxed), before);
        topology.close().await;
    });
}

#[test]
fn a_connection_out_of_step_is_closed_at_its_check_in_whoever_moved_it() {
    // A driver that frames its own messages receives the reply, drops the future of `recv`, or does
    // not call `recv` (P-23).
    for (last_call, is_kept) in [("reply", true), ("recv", false), ("send", false)] {
        let sim = simulation(1);
        let (topology, _events) = observed(&sim, "", Interest::POOLS);
        sim.block_on(async {
            let pool = primary(&topology).await.pool().clone();
            let mut connection = pool.check_out().await.unwrap();
            let (id, ping) = (connection.id(), ping());
            let ping = OpMsg { request_id: 7, body: ping.as_bytes(), ..OpMsg::default() };
            let raw = connection.established().connection();
            raw.send(ping.encode().unwrap()).await.unwrap();
            match last_call {
                "reply" => drop(raw.recv().await.unwrap()),
                "recv" => assert!(raw.recv().now_or_never().is_none()),
                _ => {}
            }
            assert_eq!(connection.established().is_usable(), is_kept, "{last_call}");
            drop(connection);
            let mut next = pool.check_out().await.unwrap();
            assert_eq!(next.id() == id, is_kept, "{last_call}");
            run_ping(&mut next).await.unwrap();
        });
    }
}

#[test]
fn check_outs_without_a_worker_share_connections_and_survive_being_dropped() {
    let sim = simulation(1);
    let uri = format!("{}&maxPoolSize=3", sim.uri());
    let mut topology = builder(&uri).scan(sim.runtime().backend).unwrap();
    let pool = sim.block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        let pool = server.pool().clone();
        let all = (0..20).map(async |number| {
            if number % 4 == 0 {
                assert!(poll_immediate(pin!(pool.check_out())).await.is_none());
                return;
            }
            let mut connection = pool.check_out().await.unwrap();
            run_ping(&mut connection).await.unwrap();
        });
        join_all(all).await;
        let stats = pool.stats();
        assert!(stats.idle <= 3 && stats.idle > 0, "{stats:?}");
        assert_eq!((stats.in_use, stats.waiting, stats.pending), (0, 0, 0), "{stats:?}");
        drop(server);
        topology.close();
        pool
    });
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.connections(), 0, "{pool:?} is closed");
}

#[test]
fn check_outs_without_a_worker_wait_for_their_whole_time() {
    let sim = simulation(1);
    let uri = format!("{}&maxPoolSize=1&waitQueueTimeoutMS=100", sim.uri());
    let mut topology = builder(&uri).scan(sim.runtime().backend).unwrap();
    sim.block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        let pool = server.pool();
        let held = pool.check_out().await.unwrap();
        for (deadline, millis) in [(None, 100), (Some(20), 20), (Some(300), 300)] {
            let began = sim.now();
            let deadline = deadline.map(|millis| began + Duration::from_millis(millis));
            let error = match deadline {
                Some(deadline) => pool.check_out_within(deadline).await.unwrap_err(),
                None => pool.check_out().await.unwrap_err(),
            };
            assert!(error.is_timeout(), "{error}");
            assert_eq!(sim.now().since(began), Duration::from_millis(millis), "{error}");
        }
        drop(held);
        pool.check_out().await.unwrap();
    });
}

#[test]
fn a_check_out_of_an_idle_connection_and_its_check_in_allocate_nothing() {
    // Without a sink, a check-out of an idle connection allocates nothing (P-51).
    let hosts = [sdam::ServerAddress::new("a", 27017)];
    let sim = Sim::new(1, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
    let topology = builder(&sim.uri()).start(sim.runtime()).unwrap();
    let pool = sim.block_on(async {
        let pool = primary(&topology).await.pool().clone();
        drop(pool.check_out().await.unwrap());
        pool
    });
    let pair = || drop(pool.check_out().now_or_never().unwrap().unwrap());
    let allocations = allocation_counter::measure(|| (0..100).for_each(|_| pair()));
    assert_eq!(allocations.count_total, 0);
    sim.block_on(topology.close());
}
