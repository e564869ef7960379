//! Handles that share the monitoring of a deployment.

use std::{sync::Arc, time::Duration};

use sdam::{
    Criteria, Deployments, Error, ErrorOutcome, ErrorReport, EventKind, EventName, Interest,
    NoPools, PoolHandle, ServerType, Stage, Topology, TopologyBuilder,
};
use sdam_events::channel::{EventStream, unbounded};
use sdam_sim::runtime::Sim;
use sdam_testkit::RecordingPools;

use crate::{assert_pool_panics, complete, drain, simulation};

const PATIENCE: Duration = Duration::from_secs(60);

fn deployments(sim: &Sim) -> Deployments {
    Deployments::new(sim.runtime())
}

fn builder(uri: &str) -> TopologyBuilder {
    Topology::builder(uri).unwrap()
}

/// Opens a handle on the simulated deployment with these options.
fn open(sim: &Sim, deployments: &Deployments, options: &str) -> Topology {
    deployments.open(builder(&format!("{}&{options}", sim.uri()))).unwrap()
}

/// Opens a handle whose sink wants all events.
fn observed(sim: &Sim, deployments: &Deployments) -> (Topology, EventStream) {
    let (sink, events) = unbounded();
    let handle = deployments.open(builder(&sim.uri()).sink(sink.interested_in(Interest::ALL)));
    (handle.unwrap(), events)
}

async fn discovered<P: PoolHandle>(topology: &Topology<P>) {
    topology.wait_for(complete, PATIENCE).await.expect("all servers are found");
}

#[test]
fn a_thousand_handles_share_the_sockets_and_tasks_of_one() {
    let sim = simulation(1);
    let deployments = deployments(&sim);
    sim.block_on(async {
        let first = open(&sim, &deployments, "appName=0");
        discovered(&first).await;
        sim.run_for(Duration::from_secs(30));
        let (connections, tasks) = (sim.connections(), sim.tasks());
        assert_eq!(connections, 6, "a check and a ping for each member");
        let mut handles = vec![first];
        for index in 1..1000 {
            handles.push(open(&sim, &deployments, &format!("appName={index}")));
        }
        for handle in &handles {
            let server = handle.try_select(&Criteria::write()).unwrap();
            assert_eq!(server.unwrap().server_type(), ServerType::RsPrimary, "known at once");
        }
        sim.step_down().unwrap();
        for handle in &handles {
            discovered(handle).await;
        }
        sim.run_for(Duration::from_secs(30));
        assert_eq!((sim.connections(), sim.tasks()), (connections, tasks));
        let last = handles.pop().unwrap();
        for handle in handles {
            handle.close().await;
        }
        assert_eq!(sim.connections(), connections, "one handle is still open");
        assert!(last.try_select(&Criteria::write()).unwrap().is_some());
        last.close().await;
        assert_eq!((sim.connections(), sim.tasks()), (0, 0));
        let again = open(&sim, &deployments, "");
        discovered(&again).await;
        drop(again);
    });
    sim.run_for(Duration::from_secs(1));
    assert_eq!((sim.connections(), sim.tasks()), (0, 0), "the dropped handle was the last one");
}

#[test]
fn a_further_handle_allocates_at_most_512_bytes() {
    const HANDLES: usize = 500;
    let sim = simulation(11);
    let deployments = deployments(&sim);
    sim.block_on(async {
        let first = open(&sim, &deployments, "");
        discovered(&first).await;
        // Opens all handles once and drops all but one, so that the lists of handles do not have to
        // grow during the measurement.
        let mut handles: Vec<_> = (0..HANDLES).map(|_| open(&sim, &deployments, "")).collect();
        handles.truncate(1);
        let allocated = allocation_counter::measure(|| {
            handles.extend((1..HANDLES).map(|_| open(&sim, &deployments, "")));
            sim.run_for(Duration::from_secs(30));
        });
        let each = allocated.bytes_current / (HANDLES as i64 - 1);
        assert!((200..=512).contains(&each), "{each} bytes");
    });
}

#[test]
fn handles_with_other_monitoring_options_have_monitors_of_their_own() {
    let sim = simulation(2);
    let deployments = deployments(&sim);
    sim.block_on(async {
        let handles = ["", "heartbeatFrequencyMS=20000", "connectTimeoutMS=20000", "appName=x"]
            .map(|options| open(&sim, &deployments, options));
        for handle in &handles {
            discovered(handle).await;
        }
        sim.run_for(Duration::from_secs(30));
        assert_eq!(sim.connections(), 3 * 6);
        for handle in &handles {
            handle.close().await;
        }
        assert_eq!(sim.connections(), 0);
    });
}

#[test]
fn a_broken_connection_of_one_handle_concerns_all() {
    let sim = simulation(4);
    let deployments = deployments(&sim);
    sim.block_on(async {
        let (one, _) = observed(&sim, &deployments);
        let (other, mut events) = observed(&sim, &deployments);
        discovered(&one).await;
        let primary = one.select(&Criteria::write()).await.unwrap();
        // After this error, the handle has a generation of its own, which is translated to that of
        // the deployment.
        let refused = Error::auth("refused");
        let report = ErrorReport::new(primary.generation(), refused);
        assert_eq!(one.handle_error(primary.id(), &report), ErrorOutcome::Cleared);
        assert!(one.try_select(&Criteria::write()).unwrap().is_none());
        assert!(other.try_select(&Criteria::write()).unwrap().is_some());
        assert_eq!(one.handle_error(primary.id(), &report), ErrorOutcome::Stale);
        discovered(&one).await;
        let primary = one.select(&Criteria::write()).await.unwrap();
        assert_eq!(primary.generation().as_u64(), 1);
        drain(&mut events);
        let broken = Error::network(Stage::Operation, "reset");
        let report = ErrorReport::new(primary.generation(), broken);
        assert_eq!(one.handle_error(primary.id(), &report), ErrorOutcome::Cleared);
        assert!(other.try_select(&Criteria::write()).unwrap().is_none());
        assert_eq!(one.generation(primary.id(), None).unwrap().as_u64(), 2);
        assert_eq!(other.generation(primary.id(), None).unwrap().as_u64(), 1);
        assert_eq!(one.handle_error(primary.id(), &report), ErrorOutcome::Stale);
        one.close().await;
        other.close().await;
        let names: Vec<_> = drain(&mut events).iter().map(|event| event.kind.name()).collect();
        assert!(names.contains(&EventName::PoolCleared), "{names:?}");
        assert_eq!(names.last(), Some(&EventName::TopologyClosed));
    });
}

#[test]
fn a_late_handle_publishes_how_the_servers_became_known() {
    let sim = simulation(5);
    let deployments = deployments(&sim);
    sim.block_on(async {
        let (first, mut firsts) = observed(&sim, &deployments);
        discovered(&first).await;
        let (late, mut lates) = observed(&sim, &deployments);
        assert_ne!(first.id(), late.id());
        sim.run_for(Duration::from_secs(60));
        sim.step_down().unwrap();
        discovered(&late).await;
        first.close().await;
        late.close().await;
        for events in [drain(&mut firsts), drain(&mut lates)] {
            let mut description = Arc::default();
            let mut under_way = 0;
            for event in &events {
                match &event.kind {
                    EventKind::TopologyDescriptionChanged { previous, new } => {
                        assert_eq!(*previous, description);
                        description = Arc::clone(new);
                    }
                    EventKind::ServerHeartbeatStarted(_) => under_way += 1,
                    EventKind::ServerHeartbeatSucceeded { .. }
                    | EventKind::ServerHeartbeatFailed { .. } => {
                        assert!(under_way > 0, "no end without its beginning");
                        under_way -= 1;
                    }
                    _ => {}
                }
            }
            let names: Vec<_> = events.iter().map(|event| event.kind.name()).collect();
            assert_eq!(names.first(), Some(&EventName::TopologyOpening));
            assert_eq!(names.last(), Some(&EventName::TopologyClosed));
            let count = |name| names.iter().filter(|own| **own == name).count();
            assert_eq!(count(EventName::ServerOpening), 3);
            assert_eq!(count(EventName::ServerClosed), 3);
            assert!(description.servers().is_empty());
        }
    });
}

#[test]
fn a_panic_of_a_pool_stays_with_its_handle() {
    let sim = simulation(6);
    let deployments = deployments(&sim);
    sim.block_on(async {
        let pools = RecordingPools::default();
        pools.break_at("ready");
        let builder = builder(&sim.uri()).pools(pools.clone());
        let panicking = deployments.open(builder).unwrap();
        let sound: Topology<NoPools> = open(&sim, &deployments, "");
        discovered(&sound).await;
        discovered(&panicking).await;
        pools.break_at("clear");
        let primary = sound.select(&Criteria::write()).await.unwrap();
        let report =
            ErrorReport::new(primary.generation(), Error::network(Stage::Operation, "reset"));
        assert_eq!(sound.handle_error(primary.id(), &report), ErrorOutcome::Cleared);
        discovered(&sound).await;
        discovered(&panicking).await;
        // Dropping the handle re-raises the panic of its pools.
        pools.break_at("close");
        assert_pool_panics(|| drop(panicking));
        assert!(sound.try_select(&Criteria::write()).unwrap().is_some());
        sound.close().await;
        assert_eq!(sim.connections(), 0);
    });
}

#[test]
fn selections_of_a_waiting_handle_bring_checks_forward() {
    let sim = simulation(7);
    let deployments = deployments(&sim);
    sim.block_on(async {
        let idle = open(&sim, &deployments, "");
        let waiting = open(&sim, &deployments, "serverSelectionTimeoutMS=20000");
        discovered(&waiting).await;
        let primary = complete(&waiting.snapshot()).unwrap();
        sim.kill(sdam_sim::Target::Primary).unwrap();
        sim.run_for(Duration::from_secs(1));
        let started = sim.now();
        let selected = waiting.select(&Criteria::write()).await.unwrap();
        assert_ne!(*selected.address(), primary);
        assert!(sim.now().since(started) < Duration::from_secs(15));
        assert_eq!(idle.waiters(), 0);
        idle.close().await;
        waiting.close().await;
    });
}

#[cfg(feature = "client")]
#[test]
fn clients_share_monitors_and_have_pools_of_their_own() {
    use bson::doc;
    use sdam::client::{Client, Command};

    let sim = simulation(9);
    let deployments = deployments(&sim);
    let ping = doc! { "ping": 1 }.to_vec().unwrap();
    sim.block_on(async {
        let open = || Client::builder(&sim.uri()).unwrap().open(&deployments).unwrap();
        let clients = [open(), open()];
        for client in &clients {
            client.run(&Command::new("admin", &ping)).await.unwrap();
        }
        sim.run_for(Duration::from_secs(30));
        assert_eq!(sim.connections(), 6 + 2, "the monitors' and one of each client's pool");
        for client in &clients {
            client.close().await;
        }
        assert_eq!((sim.connections(), sim.tasks()), (0, 0));
    });
}

#[test]
fn a_handle_that_fails_leaves_no_monitor_behind() {
    let sim = simulation(10);
    let deployments = deployments(&sim);
    let uri = format!("{}&authMechanism=MONGODB-X509", sim.uri());
    let refused = deployments.open(builder(&uri)).unwrap_err().to_string();
    assert!(refused.contains("tlsCertificateKeyFile"), "{refused}");
    let shared = open(&sim, &deployments, "");
    sim.block_on(async {
        discovered(&shared).await;
        assert!(deployments.open(builder(&uri)).is_err(), "also beside another handle");
        sim.run_for(Duration::from_secs(30));
        assert_eq!(sim.connections(), 6);
        shared.close().await;
        assert_eq!((sim.connections(), sim.tasks()), (0, 0));
    });
}
