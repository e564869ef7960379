//! Awaited replies of monitors: one per request, and streamed without pause.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::Document;
use sdam::{Criteria, Event, EventKind, Instant, ServerAddress, ServerType, Topology};
use sdam_core::event::Heartbeat;
use sdam_events::sink::sink_fn;
use sdam_sim::{
    Action, Blueprint, MemberId,
    config::SetConfig,
    runtime::{Direction, Sim, Verdict},
};

/// The member whose behaviour the tests change; it is not the primary.
const MEMBER: MemberId = MemberId(1);

/// A simulated topology, its events, and the number of awaitable requests to [`MEMBER`].
struct Harness {
    sim: Sim,
    topology: Topology,
    events: Arc<Mutex<Vec<Event>>>,
    awaitable: Arc<Mutex<usize>>,
}

impl Harness {
    /// Starts a topology of a set of `a`, `b` and `c`, after applying `action` to the set.
    fn start(action: &Action) -> Self {
        let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
        let sim = Sim::new(1, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
        sim.run_for(Duration::from_secs(20));
        sim.apply(action).unwrap();
        let awaitable = Arc::<Mutex<usize>>::default();
        let asked = Arc::clone(&awaitable);
        sim.network().add_rule(move |frame| {
            if (frame.direction, frame.member) == (Direction::ToServer, MEMBER) {
                // Header, flags, and the kind of the one section.
                let command = Document::from_reader(&frame.bytes[21..]).unwrap();
                *asked.lock().unwrap() += usize::from(command.contains_key("topologyVersion"));
            }
            Verdict::Pass
        });
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let recorded = Arc::clone(&events);
        let topology = Topology::builder(&sim.uri())
            .unwrap()
            .sink(sink_fn(move |event| {
                recorded.lock().unwrap().push(event.clone());
            }))
            .start(sim.runtime())
            .unwrap();
        let this = Self {
            sim,
            topology,
            events,
            awaitable,
        };
        for host in ["b", "c"] {
            this.wait_for(host, ServerType::RsSecondary);
        }
        this
    }

    /// Waits until the server at `host` has this type.
    fn wait_for(&self, host: &str, server_type: ServerType) {
        let found = self.sim.block_on(self.topology.wait_for(
            |snapshot| {
                let mut servers = snapshot.description().servers().iter();
                let server = servers.find(|server| server.address.host() == host)?;
                (server.server_type == server_type).then_some(())
            },
            Duration::from_secs(60),
        ));
        assert!(found.is_some(), "{host} is {server_type}");
    }

    /// Returns the checks of `host` that have succeeded since `from`.
    fn heartbeats(&self, host: &str, from: Instant) -> Vec<Heartbeat> {
        let events = self.events.lock().unwrap();
        let heartbeats = events.iter().filter_map(|event| match &event.kind {
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } if event.at >= from => {
                Some(heartbeat)
            }
            _ => None,
        });
        let of_host = heartbeats.filter(|heartbeat| heartbeat.address.host() == host);
        of_host.cloned().collect()
    }

    fn end(self) {
        self.sim.block_on(self.topology.close());
        assert_eq!((self.sim.tasks(), self.sim.connections()), (0, 0));
    }
}

/// M-20: a server MAY stream; one that needs a request for each reply reports changes as fast.
#[test]
fn a_server_that_does_not_stream_receives_a_request_for_each_awaited_reply() {
    let check = |exhaust: bool, asks_each_time: bool| {
        let harness = Harness::start(&Action::Exhaust(MEMBER.into(), exhaust));
        harness.sim.run_for(Duration::from_secs(35));
        let before = harness.sim.now();
        let primary = harness
            .topology
            .snapshot()
            .description()
            .primary()
            .cloned()
            .unwrap();
        assert_ne!(primary.address.host(), "b");
        harness.sim.apply(&Action::StepUp(MEMBER.into())).unwrap();
        harness.wait_for("b", ServerType::RsPrimary);
        let noticed = harness.sim.now().since(before);
        assert!(noticed < Duration::from_secs(1), "{noticed:?}");
        // The events may still have to be delivered.
        harness.sim.run_for(Duration::from_millis(1));
        let awaited = harness.heartbeats("b", Instant::EPOCH);
        let awaited = awaited.iter().filter(|heartbeat| heartbeat.awaited).count();
        assert!(awaited > 3, "{awaited}");
        let asked = *harness.awaitable.lock().unwrap();
        // The last request has no reply yet.
        assert_eq!(asked, if asks_each_time { awaited + 1 } else { 1 });
        harness.end();
    };
    check(false, true);
    check(true, false);
}

/// A server that reports a change a thousand times a second causes a bounded amount of work, stays
/// known, and delays no other server.
#[test]
fn replies_of_a_server_that_streams_without_pause_are_read_at_a_bounded_rate() {
    let harness = Harness::start(&Action::Exhaust(MEMBER.into(), true));
    let flood = |every| Action::Flood(MEMBER.into(), every);
    let before = harness.sim.now();
    harness
        .sim
        .apply(&flood(Some(Duration::from_millis(1))))
        .unwrap();
    harness.sim.run_for(Duration::from_secs(20));
    let pushed = harness.heartbeats("b", before);
    // A burst, and then twenty a second.
    assert!(
        (100..=50 + 20 * 20).contains(&pushed.len()),
        "{}",
        pushed.len()
    );
    // Each causes events of the server, of the topology and of the check.
    let count = harness.events.lock().unwrap().len();
    assert!(count < 6 * pushed.len() + 200, "{count}");
    for host in ["a", "c"] {
        let others = harness.heartbeats(host, before).len();
        assert!((1..10).contains(&others), "{host}: {others}");
    }
    let selected = harness
        .sim
        .block_on(harness.topology.select(&Criteria::write()));
    drop(selected.unwrap());
    // Also during the burst: the description is never older than the shortest wait.
    let before = harness.sim.now();
    harness.sim.apply(&Action::StepUp(MEMBER.into())).unwrap();
    harness.sim.run_for(Duration::from_secs(1));
    let primary = harness
        .topology
        .snapshot()
        .description()
        .primary()
        .cloned()
        .unwrap();
    assert_eq!(primary.address.host(), "b", "since {before:?}");
    harness.sim.apply(&flood(None)).unwrap();
    harness.end();
}
