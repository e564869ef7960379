//! Measures how a silent primary affects the operations of clients with and without a detector.

use std::time::Instant;

use bson::rawdoc;
use sdam::{
    Options, Snapshot,
    client::{Client, Command},
    events::sink_fn,
    options::Detector,
};
use sdam_live::ReplicaSetBuilder;

use super::*;

/// The names of the clients, and their detectors.
const CLIENTS: [(&str, Option<Detector>); 2] =
    [("without a detector", None), ("probing", Some(Detector::PROBING))];

/// A summary of a client's inserts after its primary has become silent.
struct Recovery {
    /// The time from the beginning of the silence until connections in use were interrupted.
    left_after: Duration,
    /// The duration of the longest insert that was in progress when the silence began, or began
    /// later.
    longest: Duration,
    failed: usize,
}

/// The maximum number of rounds in which the primary becomes silent. If this host stalls, detectors
/// wait longer, so more than one round may be needed.
const ROUNDS: usize = 3;

#[test]
#[ignore = "deep: real servers"]
fn a_detector_frees_the_operations_that_wait_for_a_frozen_primary() {
    let Some(set) = start(builder()) else { return };
    let freeze = |primary: &Mongod| primary.sigstop().unwrap();
    compare(&set, "frozen", freeze, |primary| primary.sigcont().unwrap());
}

#[test]
#[ignore = "deep: real servers"]
fn a_detector_frees_the_operations_that_wait_for_a_primary_that_is_cut_off() {
    let Some(set) = start(builder().relayed()) else { return };
    let cut_off = |primary: &Mongod| primary.cut_off().unwrap();
    compare(&set, "cut off", cut_off, |primary| primary.reconnect().unwrap());
}

fn builder() -> ReplicaSetBuilder {
    // Several clients write at full speed while a member is silent, so the oplog has to be large.
    ReplicaSet::builder(version()).oplog_megabytes(512)
}

fn start(builder: ReplicaSetBuilder) -> Option<ReplicaSet> {
    or_skip(builder.start(&[MemberSpec::new(), MemberSpec::new(), MemberSpec::new()])).unwrap()
}

/// Repeatedly silences the primary, measures the inserts of all clients, and ends the silence.
fn compare(set: &ReplicaSet, silence: &str, cut: impl Fn(&Mongod), heal: impl Fn(&Mongod)) {
    let host = Host::start();
    // Writes use `w=1`, because waiting for a majority may take a minute longer if a secondary
    // replicates from the silent member.
    let uri = format!("{}&w=1", set.uri());
    let writers = CLIENTS.map(|client| Writer::start(&host, &uri, client));
    let mut recoveries = CLIENTS.map(|_| Vec::<Recovery>::new());
    // The threads are not scoped, because a scope would wait for a stuck thread before the test
    // could fail.
    let threads = writers.each_ref().map(|writer| {
        let writer = Arc::clone(writer);
        thread::spawn(move || writer.work())
    });
    let is_shorter = |recoveries: &[Vec<Recovery>]| {
        let [without, probing] = [0, 1].map(|client| median(&recoveries[client]));
        probing < without
    };
    let mut rounds = 0;
    while rounds == 0 || rounds < ROUNDS && !is_shorter(&recoveries) {
        rounds += 1;
        // The member that was silent in the previous round has to roll back first; until then,
        // there is no majority.
        let begun = Instant::now();
        for writer in &writers {
            writer.find_all();
            writer.succeed_after(begun);
        }
        set.wait_until_replicated().unwrap();
        let primary = set.member(set.primary().unwrap());
        let since = Instant::now();
        cut(primary);
        for (writer, recoveries) in writers.iter().zip(&mut recoveries) {
            let recovery = writer.recover(since);
            assert_eq!(recovery.failed, 0, "inserts are retried at the next primary");
            recoveries.push(recovery);
        }
        heal(primary);
    }
    for (writer, thread) in writers.iter().zip(threads) {
        writer.is_over.store(true, Ordering::SeqCst);
        thread.join().unwrap();
    }
    for ((name, _), recoveries) in CLIENTS.iter().zip(&recoveries) {
        let lefts = recoveries.iter().map(|recovery| recovery.left_after).collect();
        let waits = recoveries.iter().map(|recovery| recovery.longest).collect();
        let [left, wait] = [lefts, waits].map(summary);
        println!("{silence}, {name}: left after {left}; an insert took {wait}");
    }
    assert!(is_shorter(&recoveries), "a detector is no better than none");
}

/// Returns the median of the longest inserts.
fn median(recoveries: &[Recovery]) -> Option<Duration> {
    let mut longest: Vec<_> = recoveries.iter().map(|recovery| recovery.longest).collect();
    longest.sort_unstable();
    longest.get(longest.len() / 2).copied()
}

fn summary(mut durations: Vec<Duration>) -> String {
    durations.sort_unstable();
    durations.last().map_or("unknown".to_owned(), |longest| {
        let median = durations[durations.len() / 2];
        format!("{median:.1?} (median), {longest:.1?} (longest)")
    })
}

struct Writer {
    client: Client,
    is_over: AtomicBool,
    /// The start, the duration and the success of each insert.
    inserts: Mutex<Vec<(Instant, Duration, bool)>>,
    changed: Condvar,
    name: &'static str,
    interrupts: Arc<Interrupts>,
}

/// The times at which a server's pool was cleared in a way that interrupted the connections in use.
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

    /// Waits for the first interruption after `since`.
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
        uri: &str,
        (name, detector): (&'static str, Option<Detector>),
    ) -> Arc<Self> {
        let mut options = Options::parse(uri).unwrap();
        options.detector = detector;
        let interrupts = Arc::<Interrupts>::default();
        let recorded = Arc::clone(&interrupts);
        let sink = sink_fn(move |event| match &event.kind {
            EventKind::PoolCleared { clear, .. } if clear.interrupt_in_use => recorded.record(),
            _ => {}
        });
        let builder = TopologyBuilder::new(options).sink(sink.interested_in(Interest::POOL_STATES));
        let client = builder.client(host.runtime.clone()).unwrap();
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

    /// Waits until the inserts that a silent server blocks have been interrupted and a later insert
    /// has succeeded.
    fn recover(&self, since: Instant) -> Recovery {
        let interrupted = self.interrupts.first_after(since);
        let interrupted = interrupted.unwrap_or_else(|| panic!("{}: not interrupted", self.name));
        self.succeed_after(interrupted);
        let inserts = self.inserts.lock().unwrap();
        let own = inserts.iter().filter(|(began, took, _)| *began + *took > since);
        let longest = own.clone().map(|(_, took, _)| *took).max();
        Recovery {
            left_after: interrupted.duration_since(since),
            longest: longest.unwrap(),
            failed: own.filter(|(.., succeeded)| !succeeded).count(),
        }
    }
}
