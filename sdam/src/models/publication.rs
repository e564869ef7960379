use futures::stream::StreamExt;
use loom::{future::block_on, thread};
use sdam_core::{server::ServerType, topology::TopologyType};
use sdam_events::sync::explore;
use sdam_select::criteria::Criteria;

use super::{Harness, member};

#[test]
fn waiting_selections_are_woken_by_concurrent_publications() {
    // A waiting selection sees every change of the topology (L-62).
    explore(2, || {
        let harness = Harness::new(&[]);
        let waiters = [(); 2].map(|()| {
            let topology = harness.topology.clone();
            thread::spawn(move || {
                let selected = block_on(topology.select(&Criteria::write())).unwrap();
                assert_eq!(selected.server_type(), ServerType::RsPrimary);
            })
        });
        harness.checked(&member("secondary", &["a:1"]));
        harness.greeted(&member("isWritablePrimary", &["a:1"]));
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_stream_of_snapshots_yields_the_newest_and_none_twice() {
    explore(3, || {
        let harness = Harness::new(&[]);
        let mut watch = harness.topology.watch();
        let reader = thread::spawn(move || {
            let mut seen = None;
            loop {
                let snapshot = block_on(watch.next()).unwrap();
                assert!(seen < Some(snapshot.version()));
                seen = Some(snapshot.version());
                let topology_type = snapshot.description().topology_type();
                if topology_type == TopologyType::ReplicaSetWithPrimary {
                    return;
                }
            }
        });
        harness.checked(&member("secondary", &["a:1"]));
        harness.greeted(&member("isWritablePrimary", &["a:1"]));
        reader.join().unwrap();
    });
}
