//! Replaces the waker of `futures` in models, and contains the function that runs models.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
};

use super::Mutex;

/// Replaces `futures::task::AtomicWaker` in models.
///
/// Assumes that the original orders a concurrent registration and wake-up: either the wake-up calls
/// the registered waker, or the registration comes later and sees everything written before the
/// wake-up.
#[derive(Debug, Default)]
pub struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    /// Creates a value without a registered waker.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the registered waker with `waker`.
    pub fn register(&self, waker: &Waker) {
        drop(self.exchange(Some(waker.clone())));
    }

    /// Calls and removes the registered waker.
    pub fn wake(&self) {
        if let Some(waker) = self.exchange(None) {
            waker.wake();
        }
    }

    fn exchange(&self, waker: Option<Waker>) -> Option<Waker> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut place, waker)
    }
}

/// Runs `model` once for each interleaving of its threads, and fails if one of these runs panics or
/// deadlocks. Prints the number of runs.
///
/// Given a bound, tries only those interleavings in which a thread that could continue is preempted
/// at most that many times. Two preemptions reveal most errors.
pub fn explore(preemptions: impl Into<Option<usize>>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = preemptions.into();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let bound = builder
        .preemption_bound
        .map_or_else(String::new, |bound| format!(" with at most {bound} preemptions"));
    println!(
        "{}: {} interleavings{bound}",
        std::thread::current().name().unwrap_or("model"),
        runs.load(Ordering::Relaxed),
    );
}
