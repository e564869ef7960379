//! Sums over all clients, and findings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The sums over all clients.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Operations that have ended.
    pub(crate) operations: AtomicU64,
    /// The numbers of operations that failed while their deployment had a fault, by kind.
    excused: Mutex<BTreeMap<String, u64>>,
    /// Clients that were opened.
    pub(crate) opened: AtomicU64,
    /// Events that the closed clients have published, and delivered.
    pub(crate) events: [AtomicU64; 2],
    findings: AtomicU64,
}

impl Totals {
    /// Counts an operation that failed during a fault.
    pub(crate) fn excuse(&self, kind: String) {
        *self.lock().entry(kind).or_default() += 1;
    }

    /// Returns the numbers of operations that failed during faults, by kind.
    pub(crate) fn excused(&self) -> BTreeMap<String, u64> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.excused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints something that must not happen.
    pub(crate) fn found(&self, finding: &str) {
        self.findings.fetch_add(1, Ordering::SeqCst);
        println!("FOUND: {finding}");
    }

    /// Returns the number of findings.
    pub(crate) fn findings(&self) -> u64 {
        get(&self.findings)
    }
}

pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::SeqCst);
}

pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}
