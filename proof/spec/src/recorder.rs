//! The recorded events of a client or a pool.

use std::time::Duration;

use futures::{
    StreamExt,
    future::{Either, select},
};
use sdam_core::event::{Event, EventKind};
use sdam_events::channel::EventStream;
use sdam_transport::{clock::Clock, spawn::yield_now};

/// The events that a client or a pool has published so far.
#[derive(Debug)]
pub(crate) struct Recorder {
    stream: EventStream,
    events: Vec<Event>,
}

impl Recorder {
    pub(crate) fn new(stream: EventStream) -> Self {
        Self { stream, events: Vec::new() }
    }

    /// Returns the recorded events.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Waits until `matches` accepts `count` recorded events, but no longer than `limit`.
    pub(crate) async fn wait_for(
        &mut self,
        clock: &dyn Clock,
        (count, limit): (usize, Duration),
        matches: impl Fn(&EventKind) -> bool,
    ) -> Result<(), String> {
        let deadline = clock.now() + limit;
        loop {
            let matching = self.count(&matches);
            if matching >= count {
                return Ok(());
            }
            match select(self.stream.next(), clock.sleep_until(deadline)).await {
                Either::Left((Some(event), _)) => self.events.push(event),
                Either::Left((None, _)) => return Err("the client has ended".to_owned()),
                Either::Right(_) => {
                    return Err(format!("only {matching} of {count} events arrived in time"));
                }
            }
        }
    }

    /// Returns the number of recorded events that `matches` accepts.
    pub(crate) fn count(&self, matches: impl Fn(&EventKind) -> bool) -> usize {
        let matching = self.events.iter().filter(|event| matches(&event.kind));
        matching.count()
    }

    /// Records all events that were published so far. `pending` returns the number of events that
    /// have not been delivered yet.
    pub(crate) async fn flush(&mut self, pending: impl Fn() -> usize) {
        loop {
            let is_delivered = pending() == 0;
            self.events.extend(std::iter::from_fn(|| self.stream.try_next()));
            if is_delivered {
                return;
            }
            yield_now().await;
        }
    }
}
