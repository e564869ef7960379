//! A simulated application that writes one document after another.

use std::{cell::RefCell, time::Duration};

use bson::rawdoc;
use sdam::{
    client::{Client, Command},
    transport::clock::Clock,
};
use sdam_core::time::Instant;

/// The results of an application's writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// The error of the first failed write, and its time.
    pub(super) first_error: Option<(Instant, String)>,
    pub(super) longest: Longest,
    /// The start of the write in progress.
    current: Option<Instant>,
}

/// The longest write, whether it succeeded, failed, or has not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longest {
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) has_ended: bool,
}

/// Inserts documents through `client` forever, pausing before each one.
pub(super) async fn write(
    client: &Client,
    clock: &dyn Clock,
    pause: Duration,
    writes: &RefCell<Writes>,
) {
    let insert = rawdoc! { "insert": "people", "documents": [{ "name": "Ada" }] };
    let insert = Command::write("test", insert.as_bytes());
    loop {
        clock.sleep_until(clock.now() + pause).await;
        writes.borrow_mut().current = Some(clock.now());
        let error = client.run(&insert).await.err();
        let error = error.map(|error| format!("{error:#}"));
        writes.borrow_mut().ended(clock.now(), error);
    }
}

impl Writes {
    /// Adds the write that is in progress at `now`, the end of the simulation.
    pub(super) fn at_the_end(mut self, now: Instant) -> Self {
        self.measure(now, false);
        self
    }

    fn ended(&mut self, now: Instant, error: Option<String>) {
        self.measure(now, true);
        match error {
            None => self.succeeded += 1,
            Some(error) => {
                self.failed += 1;
                self.first_error.get_or_insert((now, error));
            }
        }
    }

    /// Stores the current write if it is the longest so far.
    fn measure(&mut self, now: Instant, has_ended: bool) {
        let Some(began) = self.current.take() else {
            return;
        };
        let took = now.since(began);
        if took > self.longest.took {
            self.longest = Longest { began, took, has_ended };
        }
    }
}
