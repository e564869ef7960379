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
    /// When the connections in use to a server were interrupted.
    interrupts: Arc<Mutex<Vec<Instant>>>,
}

impl Writer {
    fn start(
        host: &Host,
        set: &ReplicaSet,
        (name, detector): (&'static str, Option<Detector>),
    ) -> Arc<Self> {
        let mut options = Options::parse(&set.uri()).unwrap();
        options.detector = detector;
        let interrupts = Arc::<Mutex<Vec<Instant>>>::default();
        let recorded = Arc::clone(&interrupts);
        let sink = sink_fn(move |event| match &event.kind {
            EventKind::PoolCleared { clear, .. } if clear.interrupt_in_use => {
                recorded.lock().unwrap().push(Instant::now());
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

    /// Waits until an insert that began after `since` has succeeded, and returns the longest one
    /// that was under way or began since then, and the number of failed ones.
    fn longest_since(&self, since: Instant) -> (Duration, usize) {
        let inserts = self.inserts.lock().unwrap();
        let is_missing = |inserts: &mut Vec<(Instant, Duration, bool)>| {
            !inserts.iter().rev().any(|(began, _, succeeded)| *began > since && *succeeded)
        };
        let (inserts, waited) =
            self.changed.wait_timeout_while(inserts, PATIENCE, is_missing).unwrap();
        let last = inserts.last();
        let topology = self.client.topology().snapshot();
        assert!(!waited.timed_out(), "{}: stuck after {last:?} with {topology:?}", self.name);
        let own = inserts.iter().filter(|(began, took, _)| *began + *took > since);
        let longest = own.clone().map(|(_, took, _)| *took).max();
        (longest.unwrap(), own.filter(|(.., succeeded)| !succeeded).count())
    }

    /// Returns how long after `since` connections in use were interrupted.
    fn interrupted_after(&self, since: Instant) -> Duration {
        let interrupts = self.interrupts.lock().unwrap();
        let first = interrupts.iter().find(|at| **at > since);
        first.unwrap().duration_since(since)
    }
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
            let _ = writer.longest_since(begun);
        }
        let primary = set.primary().unwrap();
        let frozen = Instant::now();
        set.member(primary).sigstop().unwrap();
        for ((writer, waits), lefts) in writers.iter().zip(&mut waits).zip(&mut lefts) {
            let (longest, failed) = writer.longest_since(frozen);
            assert_eq!(failed, 0, "inserts are retried at the next primary");
            waits.push(longest);
            lefts.push(writer.interrupted_after(frozen));
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
