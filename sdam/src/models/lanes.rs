use std::sync::Arc;

use loom::thread;
use sdam_core::{address::ServerAddress, ids::ServerId};
use sdam_events::sync::explore;
use sdam_transport::pool::{NoPools, PoolHandle};

use crate::engine::{pools::typed, server::Server};

fn server(pool: Arc<NoPools>) -> Server {
    let server = Server::new(ServerId::from_u64(1), ServerAddress::new("a", 1));
    server.pool_or_create(|| Box::new(pool));
    server
}

fn is_pool(pool: Option<&dyn PoolHandle>, other: &Arc<NoPools>) -> bool {
    Arc::ptr_eq(typed(pool), other)
}

#[test]
fn operations_are_counted_exactly_on_one_lane_and_on_two() {
    // An operation is counted from its selection to its end (L-43).
    for lanes in [[0, 0], [0, 1]] {
        explore(None, move || {
            let server = Arc::new(server(Arc::new(NoPools)));
            let operations = lanes.map(|lane| {
                let server = Arc::clone(&server);
                thread::spawn(move || {
                    let operation = server.start_operation(lane);
                    assert!((1..=2).contains(&server.operation_count()));
                    drop(operation);
                    assert!(server.operation_count() <= 1);
                })
            });
            assert!(server.operation_count() <= 2);
            for operation in operations {
                operation.join().unwrap();
            }
            assert_eq!(server.operation_count(), 0);
        });
    }
}

#[test]
fn an_operation_that_outlives_its_server_releases_the_pool_when_it_ends() {
    // A dropped operation is no longer counted (L-44).
    explore(None, || {
        let pool = Arc::new(NoPools);
        let server = server(Arc::clone(&pool));
        let operations = [0, 1].map(|lane| server.start_operation(lane));
        let threads = operations.map(|operation| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || assert!(is_pool(operation.server.pool(), &pool)))
        });
        drop(server);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(Arc::strong_count(&pool), 1);
    });
}
