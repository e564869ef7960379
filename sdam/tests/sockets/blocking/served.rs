//! Simulated deployments on loopback.

use sdam::{BlockingTopology, Criteria, EventKind, SelectionError, snapshot::ObjectId};
use sdam_events::channel::unbounded;
use sdam_sim::{Blueprint, Served};

use super::start;

/// Returns the name of the primary as known to the deployment itself.
fn primary(set: &Served) -> String {
    let status = set.status().unwrap();
    status.primary().unwrap().address.to_string()
}

#[test]
fn a_string_of_either_kind_is_resolved_before_the_topology_is_built() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let builder = BlockingTopology::builder(set.uri()).unwrap();
    let mut topology = builder.blocking().unwrap();
    assert!(topology.select(&Criteria::write()).is_ok());
    let error = BlockingTopology::builder("mongodb+srv://a.example.com:1").unwrap_err();
    assert!(error.kind() == sdam::ErrorKind::Invalid, "{error}");
}

#[test]
fn the_events_of_requested_checks_and_of_the_end_have_the_id_that_was_chosen() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let (sink, mut events) = unbounded();
    let id = ObjectId::from_bytes(*b"twelve bytes");
    let builder = BlockingTopology::builder(set.uri()).unwrap().sink(sink).id(id);
    let mut topology = builder.blocking().unwrap();
    topology.scan();
    let description = topology.description();
    let ids: Vec<_> = description.servers().iter().map(|it| it.id).collect();
    let chosen = description.primary().unwrap().id;
    topology.check(chosen);
    assert_eq!(topology.id(), id);
    topology.close();
    let error = topology.select(&Criteria::write()).unwrap_err();
    assert!(matches!(error, SelectionError::Closed), "{error}");
    let events: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
    assert!(events.iter().all(|event| event.topology == id));
    for server in ids {
        let is_check = |kind: &EventKind| {
            matches!(kind, EventKind::ServerHeartbeatSucceeded { heartbeat, .. }
                if heartbeat.server == server)
        };
        let checks = events.iter().filter(|event| is_check(&event.kind)).count();
        assert_eq!(checks, if server == chosen { 2 } else { 1 });
    }
    let last = events.last().map(|event| &event.kind);
    assert!(matches!(last, Some(EventKind::TopologyClosed)), "{last:?}");
}

#[test]
fn blocking_mode_works_within_an_executor() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let uri = set.uri().to_owned();
    let selected = futures::executor::block_on(async move {
        start(&uri, "").select(&Criteria::write()).map(|it| it.address().clone())
    });
    assert_eq!(selected.unwrap().to_string(), primary(&set));
}
