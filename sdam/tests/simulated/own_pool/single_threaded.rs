//! Single-threaded mode, in which check-outs open their connections themselves.

use std::{pin::pin, time::Duration};

use futures::future::{join_all, poll_immediate};
use sdam::Criteria;

use super::{builder, run_ping, simulation};

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
