//! Checks the resident memory of a process whose sink hangs while a server floods the process with
//! long replies.
//!
//! The test measures the whole process, so this test program contains no other test.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    fs,
    sync::{
        Arc, Mutex,
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use futures::executor::block_on;
use sdam::{Runtime, ServerAddress, ServerType, Spawner, Topology, runtime::Task};
use sdam_events::{
    queue::EventQueue,
    sink::{EventSink, sink_fn},
};
use sdam_sim::{Action, Blueprint, MemberId, config::SetConfig, runtime::Sim};

/// The member that floods; it is not the primary.
const MEMBER: MemberId = MemberId(1);

/// The interval between the member's replies, and the average interval at which the monitor reads
/// them.
const EVERY: Duration = Duration::from_millis(50);

/// The length of one of the member's tags, and so the approximate length of each of its replies.
const TAG: usize = 200 << 10;

/// The duration of the member's flood, in virtual time. In the first half, each connection is reset
/// after a short time; in the second half, a single connection stays open.
const SECONDS: u64 = 40;

/// The memory that the process may use in addition to the event queue, in bytes.
const SLACK: usize = 8 << 20;

/// The maximum interval between two checks of a server, including a tolerance of 1 s.
const FRESH: Duration = Duration::from_secs(11);

/// Runs the event dispatcher on a separate thread, which a sink may block, and runs all other tasks
/// in the simulation.
#[derive(Debug)]
struct OwnThread(Arc<dyn Spawner>);

impl Spawner for OwnThread {
    fn spawn(&self, task: Task) {
        if task.name() == "sdam-events" {
            thread::spawn(|| block_on(task));
        } else {
            self.0.spawn(task);
        }
    }
}

/// Returns the resident memory of the process in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<usize>().unwrap() << 10
}

/// Starts a simulated set of `a`, `b` and `c`, where `b` sends long replies.
fn start() -> Sim {
    let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
    let mut config = SetConfig::new("rs", hosts);
    let member = config.members[1].clone();
    config.members[1] = member.tag("long", &"x".repeat(TAG));
    let sim = Sim::new(1, &Blueprint::replica_set(config));
    sim.run_for(Duration::from_secs(20));
    sim
}

/// Lets the member flood a topology that has the given sink, and checks that the topology still
/// checks each server in time. Returns the maximum growth of the resident memory in bytes, and the
/// number of dropped events.
fn flood(sim: &Sim, runtime: Runtime, sink: impl EventSink) -> (usize, u64) {
    let builder = Topology::builder(&sim.uri()).unwrap();
    let topology = builder.sink(sink).start(runtime).unwrap();
    sim.network().reset_after(MEMBER, Some(10 * TAG));
    let known = topology.wait_for(
        |snapshot| {
            let mut servers = snapshot.description().servers().iter();
            servers.all(|server| server.server_type != ServerType::Unknown).then_some(())
        },
        Duration::from_secs(60),
    );
    assert_eq!(sim.block_on(known), Some(()));
    let action = |every| Action::Flood(MEMBER.into(), every);
    sim.apply(&action(Some(EVERY))).unwrap();
    let (before, mut most) = (resident(), 0);
    for second in 0..SECONDS {
        if second == SECONDS / 2 {
            sim.network().reset_after(MEMBER, None);
        }
        sim.run_for(Duration::from_secs(1));
        most = most.max(resident());
        for server in topology.snapshot().description().servers() {
            let age = server.last_update_time.map(|at| sim.now().since(at));
            let is_fresh = age.is_some_and(|age| age < FRESH);
            assert!(is_fresh, "{} after {second} s: {age:?}", server.address);
        }
    }
    let dropped = topology.events().dropped();
    sim.apply(&action(None)).unwrap();
    sim.block_on(topology.close());
    (most.saturating_sub(before), dropped)
}

/// Returns a sink that blocks in its first event until the returned sender is dropped.
fn hanging_sink() -> (Sender<()>, impl EventSink) {
    let (unblock, blocked) = mpsc::channel();
    let blocked = Mutex::new(blocked);
    let sink = sink_fn(move |_| assert!(blocked.lock().unwrap().recv().is_err()));
    (unblock, sink)
}

#[test]
fn a_flood_and_a_hanging_sink_make_the_process_grow_by_no_more_than_the_bound_of_the_queue() {
    let sim = start();
    // The warm-up runs the same load with a sink that does not hang.
    let (_, dropped) = flood(&sim, sim.runtime(), sink_fn(|_| ()));
    assert_eq!(dropped, 0);
    let runtime = sim.runtime();
    let spawner = OwnThread(runtime.spawner);
    let runtime = Runtime::new(runtime.backend, Arc::new(spawner));
    let (unblock, sink) = hanging_sink();
    let (grown, dropped) = flood(&sim, runtime, sink);
    drop(unblock);
    assert!(grown < EventQueue::FULL_BYTES + SLACK, "{grown}");
    assert!(dropped > 1000, "{dropped}");
}
