//! Sums over all clients, and findings.

use std::sync::atomic::{AtomicU64, Ordering};

/// The sums over all clients.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Operations that have ended.
    pub(crate) operations: AtomicU64,
    /// Operations that failed while their deployment had a fault.
    pub(crate) excused: AtomicU64,
    /// Clients that were opened.
    pub(crate) opened: AtomicU64,
    /// Events that the closed clients have published, and delivered.
    pub(crate) events: [AtomicU64; 2],
    findings: AtomicU64,
}

impl Totals {
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
