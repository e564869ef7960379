//! Operations of clients with and without a detector on a primary that is frozen.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bson::rawdoc;
use futures::executor::block_on;
use sdam::{
    Detector, EventKind, Interest, Options, Snapshot, TopologyBuilder,
    client::{Client, ClientBuilder, Command},
    events::sink::sink_fn,
};
use sdam_live::ReplicaSet;

use crate::{
    failover::is_complete,
    runtime::{Host, replica_set},
};

/// The names of the clients, and their detectors.
const CLIENTS: [(&str, Option<Detector>); 3] = [
    ("without a detector", None),
    ("probing", Some(Detector::PROBING)),
    ("phi accrual", Some(Detector::PHI_ACCRUAL)),
];

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the number of times to freeze the primary: `SDAM_FREEZES`, or 1.
fn freezes() -> usize {
    let text = std::env::var("SDAM_FREEZES").ok();
    text.map_or(1, |text| text.parse().unwrap())
}

/// A client that inserts again and again.
struct Writer {
    client: Client,
    is_over: AtomicBool,
    /// When each insert began, how long it took, and whether it succeeded.
    inserts: Mutex<Vec<(Instant, Duration, bool)>>,
    changed: Condvar,
    name: &'static str,
    interrupts: Arc<Interrupts>,
}

/// The times at which the connections in use to a server were interrupted.
#[derive(Default)]
struct Interrupts {
    times: Mutex<Vec<Instant>>,
    changed: Condvar,
}

impl Interrupts {
    fn record(&self) {
        self.times.lock().unwrap().push(Instant::now());
        self.changed.notify_all();
    }

    /// Waits for the first one after `since`.
    fn first_after(&self, since: Instant) -> Option<Instant> {
        let find = |times: &[Instant]| times.iter().copied().find(|at| *at > since);
        let times = self.times.lock().unwrap();
        let waiting = self.changed.wait_timeout_while(times, PATIENCE, |all| find(all).is_none());
        find(&waiting.unwrap().0)
    }
}

impl Writer {
    fn start(
        host: &Host,
        set: &ReplicaSet,
        (name, detector): (&'static str, Option<Detector>),
    ) -> Arc<Self> {
        let mut options = Options::parse(&set.uri()).unwrap();
        options.detector = detector;
        let interrupts = Arc::<Interrupts>::default();
        let recorded = Arc::clone(&interrupts);
        let sink = sink_fn(move |event| match &event.kind {
            EventKind::PoolCleared { clear, .. } if clear.interrupt_in_use => {
                recorded.record();
            }
            _ => {}
        });
        let builder = TopologyBuilder::new(options).sink(sink.interested_in(Interest::POOL_STATES));
        let client = ClientBuilder::new(builder).start(host.runtime.clone()).unwrap();
        let (is_over, inserts, changed) = Default::default();
        Arc::new(Self { client, is_over, inserts, changed, name, interrupts })
    }

    fn work(&self) {
        let insert = rawdoc! { "insert": "silence", "documents": [{ "a": 1 }] };
        let insert = Command::write("test", insert.as_bytes());
        while !self.is_over.load(Ordering::SeqCst) {
            let began = Instant::now();
            let outcome = block_on(self.client.run(&insert));
            self.inserts.lock().unwrap().push((began, began.elapsed(), outcome.is_ok()));
            self.changed.notify_all();
        }
        block_on(self.client.close());
    }

    /// Waits until the client knows a primary and two secondaries.
    fn find_all(&self) {
        let is_complete = |now: &Snapshot| is_complete(now.description()).then_some(());
        let found = block_on(self.client.topology().wait_for(is_complete, PATIENCE));
        assert!(found.is_some(), "{}: {:?}", self.name, self.client.topology().snapshot());
    }

    /// Waits until an insert that began after `since` has succeeded.
    fn succeed_after(&self, since: Instant) {
        let is_missing = |inserts: &mut Vec<(Instant, Duration, bool)>| {
            !inserts.iter().rev().any(|(began, _, succeeded)| *began > since && *succeeded)
        };
        let inserts = self.inserts.lock().unwrap();
        let (inserts, waited) =
            self.changed.wait_timeout_while(inserts, PATIENCE, is_missing).unwrap();
        let last = inserts.last();
        let topology = self.client.topology().snapshot();
        assert!(!waited.timed_out(), "{}: stuck after {last:?} with {topology:?}", self.name);
    }

    /// Waits until the inserts that a frozen server holds were interrupted and a later one has
    /// succeeded.
    fn recover(&self, frozen: Instant) -> Recovery {
        let interrupted = self.interrupts.first_after(frozen);
        let interrupted = interrupted.unwrap_or_else(|| panic!("{}: not interrupted", self.name));
        self.succeed_after(interrupted);
        let inserts = self.inserts.lock().unwrap();
        let own = inserts.iter().filter(|(began, took, _)| *began + *took > frozen);
        let longest = own.clone().map(|(_, took, _)| *took).max();
        Recovery {
            left_after: interrupted.duration_since(frozen),
            longest: longest.unwrap(),
            failed: own.filter(|(.., succeeded)| !succeeded).count(),
        }
    }
}

/// The inserts of a client after a primary was frozen.
struct Recovery {
    /// Between the freeze and the interruption.
    left_after: Duration,
    /// The longest insert that was under way or began since.
    longest: Duration,
    failed: usize,
}

#[test]
fn a_detector_frees_the_operations_that_wait_for_a_frozen_primary() {
    let Some(set) = replica_set() else { return };
    let host = Host::start();
    let writers = CLIENTS.map(|client| Writer::start(&host, &set, client));
    println!("inserting at {}", set.uri());
    let (mut lefts, mut waits): ([Vec<Duration>; 3], [Vec<Duration>; 3]) = Default::default();
    // Not scoped, so that a stuck one does not delay the failure.
    let threads = writers.each_ref().map(|writer| {
        let writer = Arc::clone(writer);
        thread::spawn(move || writer.work())
    });
    for _ in 0..freezes() {
        // A member that was frozen may roll back first, and without it there is no majority.
        let begun = Instant::now();
        for writer in &writers {
            writer.find_all();
            writer.succeed_after(begun);
        }
        let primary = set.primary().unwrap();
        let frozen = Instant::now();
        set.member(primary).sigstop().unwrap();
        for ((writer, waits), lefts) in writers.iter().zip(&mut waits).zip(&mut lefts) {
            let recovery = writer.recover(frozen);
            assert_eq!(recovery.failed, 0, "inserts are retried at the next primary");
            waits.push(recovery.longest);
            lefts.push(recovery.left_after);
        }
        set.member(primary).sigcont().unwrap();
    }
    for (writer, thread) in writers.iter().zip(threads) {
        writer.is_over.store(true, Ordering::SeqCst);
        thread.join().unwrap();
    }
    for (((name, _), waits), lefts) in CLIENTS.iter().zip(&waits).zip(&lefts) {
        let [left, wait] = [lefts, waits].map(|durations| {
            let mut sorted = durations.clone();
            sorted.sort_unstable();
            let median = sorted[sorted.len() / 2];
            format!("{median:.1?} (median), {:.1?} (longest)", sorted.last().unwrap())
        });
        println!("{name}: left after {left}; an insert took {wait}");
    }
    let [without, probing, phi_accrual] = waits.map(|waits| waits.into_iter().max().unwrap());
    assert!(probing < without, "{probing:?} is not less than {without:?}");
    assert!(phi_accrual < without, "{phi_accrual:?} is not less than {without:?}");
}
