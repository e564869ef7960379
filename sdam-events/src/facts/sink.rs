use std::sync::Mutex;

use super::{Event, Fact, Facts, Interest};
use crate::sink::{EventSink, lock};

/// A sink that derives facts from the events of one topology and calls a function with each fact.
pub struct FactSink<F = fn(&Fact)> {
    facts: Mutex<Facts>,
    tell: F,
}

impl<F: Fn(&Fact) + Send + Sync + 'static> FactSink<F> {
    /// Creates a sink that calls `tell` with each fact.
    pub fn new(tell: F) -> Self {
        Self { facts: Mutex::default(), tell }
    }
}

impl<F> FactSink<F> {
    /// Returns a copy of the current facts.
    pub fn facts(&self) -> Facts {
        lock(&self.facts).clone()
    }
}

impl Default for FactSink {
    /// Creates a sink that only collects the facts, and calls no function.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl<F: Fn(&Fact) + Send + Sync + 'static> EventSink for FactSink<F> {
    fn emit(&self, event: &Event) {
        // The function runs without the lock, so it may call `facts`.
        let facts = lock(&self.facts).observe(event);
        facts.iter().for_each(&self.tell);
    }

    fn interest(&self) -> Interest {
        Facts::INTEREST
    }
}

sdam_core::opaque!(FactSink<F>, |this| facts: this.facts);
