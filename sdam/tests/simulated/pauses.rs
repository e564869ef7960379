//! Tests pausing and resuming monitoring.

use std::time::Duration;

use sdam::{Criteria, EventName, Interest, Options, Topology, TopologyBuilder};
use sdam_events::channel::unbounded;
use sdam_pool::{Pool, Pools};
use sdam_sim::runtime::Sim;

use crate::{complete, drain, simulation};

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a topology with pools.
fn start(sim: &Sim) -> Topology<Pool> {
    let pools = Pools::new(&Options::parse(&sim.uri()).unwrap()).unwrap();
    let builder = Topology::builder(&sim.uri()).unwrap().pools(pools);
    builder.start(sim.runtime()).unwrap()
}

/// Selects the primary and checks out a connection to it.
async fn use_pool(topology: &Topology<Pool>) {
    let primary = topology.select(&Criteria::write()).await.unwrap();
    drop(primary.pool().check_out().await.unwrap());
}

#[test]
fn a_paused_topology_has_no_socket_and_no_timer_and_keeps_its_snapshot() {
    let sim = simulation(1);
    sim.block_on(async {
        let topology = start(&sim);
        use_pool(&topology).await;
        topology.wait_for(complete, PATIENCE).await.unwrap();
        let primary = complete(&topology.snapshot());
        assert!(topology.pause());
        sim.run_for(Duration::from_secs(1));
        assert_eq!((sim.connections(), sim.timers()), (0, 0));
        sim.run_for(Duration::from_secs(3600));
        assert_eq!((sim.connections(), sim.timers()), (0, 0), "nothing has begun meanwhile");
        assert!(topology.snapshot().is_paused());
        assert_eq!(complete(&topology.snapshot()), primary, "the last snapshot is kept");
        assert!(topology.try_select(&Criteria::write()).unwrap().is_none());
        topology.close().await;
        assert_eq!(sim.tasks(), 0);
    });
}

#[test]
fn a_thousand_pauses_end_as_fast_as_a_start() {
    let sim = simulation(2);
    sim.block_on(async {
        let began = sim.now();
        let topology = start(&sim);
        use_pool(&topology).await;
        let cold = sim.now().since(began);
        let mut times = Vec::new();
        for round in 0..1000 {
            assert!(topology.pause());
            sim.run_for(Duration::from_millis(round % 3 * 700));
            let began = sim.now();
            if round % 2 == 0 {
                topology.resume();
            }
            use_pool(&topology).await;
            times.push(sim.now().since(began));
            assert!(!topology.snapshot().is_paused());
        }
        times.sort_unstable();
        assert!(times[500] <= cold * 3 / 2, "{:?}, at the start {cold:?}", times[500]);
        assert!(times[999] <= cold * 4, "{:?}, at the start {cold:?}", times[999]);
        topology.wait_for(complete, PATIENCE).await.unwrap();
        topology.close().await;
    });
    assert_eq!((sim.connections(), sim.tasks(), sim.timers()), (0, 0, 0));
}

#[test]
fn a_client_without_operations_pauses_by_itself_until_the_next_selection() {
    let sim = simulation(5);
    sim.block_on(async {
        let second = Duration::from_secs(1);
        let mut options = Options::parse(&sim.uri()).unwrap();
        options.pause_after = Some(30 * second);
        let pools = Pools::new(&options).unwrap();
        let builder = TopologyBuilder::new(options).pools(pools);
        let topology = builder.start(sim.runtime()).unwrap();
        for _ in 0..3 {
            for _ in 0..10 {
                use_pool(&topology).await;
                sim.run_for(10 * second);
                assert!(!topology.snapshot().is_paused(), "it is used");
            }
            let operation = topology.select(&Criteria::write()).await.unwrap();
            sim.run_for(60 * second);
            assert!(!topology.snapshot().is_paused(), "an operation is in progress");
            drop(operation);
            sim.run_for(18 * second);
            assert!(!topology.snapshot().is_paused(), "the last operation ended just now");
            // The pause begins 30 s after the last use, plus up to 1.1 heartbeats until a task
            // wakes up.
            sim.run_for(24 * second);
            assert!(topology.snapshot().is_paused());
            assert_eq!((sim.connections(), sim.timers()), (0, 0));
        }
        topology.close().await;
        assert_eq!(sim.tasks(), 0);
    });
}

#[test]
fn heartbeats_end_and_events_are_continuous_across_a_pause() {
    let sim = simulation(3);
    sim.block_on(async {
        let (sink, mut events) = unbounded();
        let builder = Topology::builder(&sim.uri()).unwrap();
        let topology =
            builder.sink(sink.interested_in(Interest::ALL)).start(sim.runtime()).unwrap();
        for _ in 0..5 {
            topology.wait_for(complete, PATIENCE).await.unwrap();
            topology.pause();
            sim.run_for(Duration::from_secs(5));
            topology.resume();
            topology.resume();
        }
        topology.close().await;
        let events = drain(&mut events);
        let count = |name| events.iter().filter(|event| event.kind.name() == name).count();
        let ended =
            count(EventName::ServerHeartbeatSucceeded) + count(EventName::ServerHeartbeatFailed);
        assert_eq!(count(EventName::ServerHeartbeatStarted), ended);
        assert_eq!(count(EventName::ServerOpening), 3);
        let mut last = None;
        for event in &events {
            if let sdam::EventKind::TopologyDescriptionChanged { previous, new } = &event.kind {
                assert!(last.is_none_or(|last| last == *previous));
                last = Some(new.clone());
            }
        }
    });
}
