//! What models have in the place of `futures`' waker, and how they are run.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
};

use super::Mutex;

/// Stands in for `futures::task::AtomicWaker` in models.
///
/// What is assumed of the original: a registration and a wake-up that meet have an order. Either
/// the wake-up calls the registered waker, or the registration happens after it and sees what
/// was written before it.
#[derive(Debug, Default)]
pub struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    /// A place without a waker.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `waker` in the place of the one before.
    pub fn register(&self, waker: &Waker) {
        drop(self.exchange(Some(waker.clone())));
    }

    /// Calls the waker that was registered last, once.
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

/// Runs `model` once for each order in which its threads may meet, and fails if one of these runs
/// panics or comes to a standstill. Prints how many there were.
///
/// With a bound, only orders are tried in which a thread is interrupted that many times while it
/// could go on. Most mistakes show with two.
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
    let bound = builder.preemption_bound.map_or_else(String::new, |bound| {
        format!(" of at most {bound} interruptions")
    });
    println!(
        "{}: {} interleavings{bound}",
        std::thread::current().name().unwrap_or("model"),
        runs.load(Ordering::Relaxed),
    );
}
