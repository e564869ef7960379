//! A sink that counts heartbeats and failovers, and exports the counters as text.
//!
//! `cargo run -p sdam-examples --example custom_sink [URI]`. Without a connection string, it
//! simulates a replica set whose primary steps down. The feature `metrics` of `sdam` exports more.

use std::{
    env,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sdam::{
    Criteria, ErrorKind, Event, EventKind, EventSink, Interest, ServerAddress, Snapshot, Topology,
    runtime, sim::Blueprint,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Debug, Default)]
struct Counters(Mutex<Counts>);

#[derive(Clone, Debug, Default)]
struct Counts {
    heartbeats: u64,
    failed_heartbeats: u64,
    failovers: u64,
    primary: Option<ServerAddress>,
}

impl EventSink for Counters {
    /// Counts the event. One task calls this without holding the topology's lock, so a slow sink
    /// only delays events.
    fn emit(&self, event: &Event) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &event.kind {
            EventKind::ServerHeartbeatSucceeded { .. } => counts.heartbeats += 1,
            // A check that was cancelled, for example because the topology was closed, has not
            // failed.
            EventKind::ServerHeartbeatFailed { failure, .. }
                if failure.kind() != ErrorKind::Cancelled =>
            {
                counts.failed_heartbeats += 1;
            }
            EventKind::TopologyDescriptionChanged { new, .. } => {
                let Some(primary) = new.primary() else { return };
                let old = counts.primary.replace(primary.address.clone());
                counts.failovers += u64::from(old.is_some_and(|old| old != primary.address));
            }
            _ => {}
        }
    }

    /// Returns the kinds of events that the sink receives. The topology does not even build other
    /// events.
    fn interest(&self) -> Interest {
        Interest::HEARTBEATS.union(Interest::DESCRIPTIONS)
    }
}

/// Counts the heartbeats and failovers of a topology, from its start until its primary has changed.
async fn count(uri: &str, step_down: impl Fn() -> Result<()>) -> Result<Counts> {
    let counters = Arc::new(Counters::default());
    let topology = Topology::builder(uri)?.sink(Arc::clone(&counters)).start(runtime::tokio()?)?;
    let old = topology.select(&Criteria::write()).await?;
    step_down()?;
    let is_changed = |snapshot: &Snapshot| {
        let primary = snapshot.description().primary()?;
        (primary.address != *old.address()).then_some(())
    };
    let changed = topology.wait_for(is_changed, Duration::from_secs(60));
    changed.await.ok_or("the primary has not changed")?;
    // `close` returns only after the sink has received the last event.
    topology.close().await;
    let counts = counters.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(counts.clone())
}

fn main() -> Result<()> {
    let host = tokio::runtime::Runtime::new()?;
    let counts = if let Some(uri) = env::args().nth(1) {
        host.block_on(count(&uri, || {
            println!("run rs.stepDown() on the primary within 60 seconds");
            Ok(())
        }))?
    } else {
        let set = Blueprint::replica_set(3).serve()?;
        host.block_on(count(set.uri(), || Ok(set.step_down()?)))?
    };
    println!("heartbeats_total {}", counts.heartbeats);
    println!("heartbeats_failed_total {}", counts.failed_heartbeats);
    println!("failovers_total {}", counts.failovers);
    Ok(())
}

#[test]
fn heartbeats_and_one_failover_are_counted() -> Result<()> {
    let set = Blueprint::replica_set(3).serve()?;
    let host = tokio::runtime::Runtime::new()?;
    let counts = host.block_on(count(set.uri(), || Ok(set.step_down()?)))?;
    assert!(counts.heartbeats >= 2, "{counts:?}");
    assert_eq!(counts.failovers, 1, "{counts:?}");
    Ok(())
}
