//! Runs many tasks that share a few pooled connections during failovers of a real replica set.

use std::{sync::atomic::AtomicU64, time::Instant};

use sdam::runtime::Task;

use super::*;

const TASKS: usize = 1000;
const CONNECTIONS: usize = 4;
const NAME: &str = "soak";

/// Returns the number of times to change the primary: `SDAM_SOAK`, by default 3.
fn failovers() -> usize {
    let text = std::env::var("SDAM_SOAK").ok();
    text.map_or(3, |text| text.parse().unwrap())
}

/// State that the tasks share: a flag that ends them, and the numbers of operations that have
/// succeeded and failed.
#[derive(Debug, Default)]
struct Work {
    is_over: AtomicBool,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

async fn ping(topology: &Topology<Pool>) -> Result<(), Error> {
    let command = doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
    let server = topology.select(&Criteria::write()).await.unwrap();
    let mut connection = server.pool().check_out().await?;
    connection.run_command(&command, Some(PATIENCE)).await?;
    Ok(())
}

/// Returns the number of this test's connections that the server reports.
fn connections(mongod: &Mongod) -> usize {
    let command = doc! {
        "aggregate": 1, "cursor": {}, "$readPreference": { "mode": "nearest" }, "pipeline": [
            { "$currentOp": { "allUsers": true, "idleConnections": true } },
            { "$match": { "appName": NAME } },
        ],
    };
    let reply = mongod.run_command("admin", command).unwrap();
    let cursor = reply.get_document("cursor").unwrap();
    cursor.get_array("firstBatch").unwrap().len()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

/// Repeatedly makes another member primary while the tasks run.
fn fail_over(set: &ReplicaSet, work: &Work) {
    for _ in 0..failovers() {
        let before = work.succeeded.load(Ordering::Relaxed);
        wait_until("operations succeed", || {
            work.succeeded.load(Ordering::Relaxed) > before + TASKS as u64
        });
        let next = set.secondaries()[0];
        set.step_up(next).unwrap();
    }
}

/// No connection leaks, and no check-out is lost.
#[test]
#[ignore = "deep: real servers"]
fn many_tasks_over_few_connections_survive_failovers_and_leak_nothing() {
    let Some(set) = replica_set() else { return };
    let uri =
        format!("{}&appName={NAME}&maxPoolSize={CONNECTIONS}&heartbeatFrequencyMS=500", set.uri());
    let host = Host::start();
    let builder = Topology::builder(&uri).unwrap().pools(Pools::new());
    let topology = builder.start(host.runtime.clone()).unwrap();
    let work = Arc::<Work>::default();
    let (ended, ends) = mpsc::channel();
    for _ in 0..TASKS {
        let (topology, work, ended) = (topology.clone(), Arc::clone(&work), ended.clone());
        let task = async move {
            while !work.is_over.load(Ordering::Relaxed) {
                let count = match ping(&topology).await {
                    Ok(()) => &work.succeeded,
                    Err(_) => &work.failed,
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
            ended.send(()).unwrap();
        };
        host.runtime.spawner.spawn(Task::new("soak", task));
    }
    fail_over(&set, &work);
    work.is_over.store(true, Ordering::Relaxed);
    for _ in 0..TASKS {
        ends.recv_timeout(PATIENCE).unwrap();
    }
    // Each server has two monitoring connections, and no others except those of the pool.
    for member in set.members() {
        let there = connections(member);
        assert!(there <= CONNECTIONS + 2, "{there} connections to {}", member.host());
    }
    block_on(topology.close());
    for member in set.members() {
        wait_until("the server notices that all connections are closed", || {
            connections(member) == 0
        });
    }
    println!("{work:?}");
}
