//! A client of this crate that inserts documents repeatedly.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bson::rawdoc;
use futures::executor::block_on;
use sdam::{
    EventKind, Interest, Options, Snapshot, TopologyBuilder,
    client::{Client, Command},
    events::sink_fn,
    options::Detector,
};

use super::{PATIENCE, Recovery};
use crate::{failover::is_complete, runtime::Host};

pub(super) struct Writer {
    client: Client,
    pub(super) is_over: AtomicBool,
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
    pub(super) fn start(
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

    pub(super) fn work(&self) {
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
    pub(super) fn find_all(&self) {
        let is_complete = |now: &Snapshot| is_complete(now.description()).then_some(());
        let found = block_on(self.client.topology().wait_for(is_complete, PATIENCE));
        assert!(found.is_some(), "{}: {:?}", self.name, self.client.topology().snapshot());
    }

    /// Waits until an insert that began after `since` has succeeded.
    pub(super) fn succeed_after(&self, since: Instant) {
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
    pub(super) fn recover(&self, since: Instant) -> Recovery {
        let interrupted = self.interrupts.first_after(since);
        let interrupted = interrupted.unwrap_or_else(|| panic!("{}: not interrupted", self.name));
        self.succeed_after(interrupted);
        let inserts = self.inserts.lock().unwrap();
        let own = inserts.iter().filter(|(began, took, _)| *began + *took > since);
        let longest = own.clone().map(|(_, took, _)| *took).max();
        Recovery {
            left_after: Some(interrupted.duration_since(since)),
            longest: longest.unwrap(),
            failed: own.filter(|(.., succeeded)| !succeeded).count(),
        }
    }
}
