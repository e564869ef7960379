//! The client's observations, derived from its events.

use std::sync::Mutex;

use sdam_core::{
    deployment::Input,
    event::{Event, EventKind, EventName},
    options::Options,
    time::Instant,
};
use sdam_events::sink::{EventSink, Interest};
use sdam_select::settings::Settings;

use crate::{
    lock::lock,
    watch::{
        Access,
        model::{Model, Run},
    },
};

/// A sink that collects the observations for the outcome of the simulation.
#[derive(Debug)]
pub(super) struct Observer(Mutex<State>);

#[derive(Debug)]
struct State {
    model: Model,
    settings: Settings,
    seen: Seen,
    is_over: bool,
}

/// A client's observations.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The time when a writable server was first found.
    pub(super) found: Option<Instant>,
    /// The periods without a writable server; the last one may not have ended.
    pub(super) runs: Vec<Run>,
    /// The number of times that a server was lost or the primary stepped down.
    pub(super) flaps: usize,
    /// The access that the deployment allows at the end, according to the client.
    pub(super) access: Access,
}

impl Observer {
    pub(super) fn new(options: &Options) -> Self {
        Self(Mutex::new(State {
            model: Model::new(options),
            settings: Settings::new(options),
            seen: Seen { found: None, runs: Vec::new(), flaps: 0, access: Access::Neither },
            is_over: false,
        }))
    }

    /// Returns what the client observed until its topology was closed.
    pub(super) fn seen(&self) -> Seen {
        let state = lock(&self.0);
        let mut seen = state.seen.clone();
        seen.runs.extend(state.model.stopwatch.current.clone());
        seen.flaps = state.model.all_flaps();
        seen.access = Access::of(&state.model.topology, &state.settings);
        seen
    }
}

impl State {
    fn observe(&mut self, event: &Event) {
        if let EventKind::Input(own) = &event.kind {
            // Ignore later events, because closing the topology makes servers Unknown although the
            // deployment has not changed.
            self.is_over |= own.input == Input::Close;
        }
        if self.is_over {
            return;
        }
        self.model.observe(event);
        if self.model.facts.is_writable() {
            self.seen.found.get_or_insert(event.at);
        }
        let last = self.model.stopwatch.last.as_ref();
        match (last, self.seen.runs.last_mut()) {
            (Some(last), Some(known)) if last.number == known.number => known.clone_from(last),
            (Some(last), _) => self.seen.runs.push(last.clone()),
            (None, _) => {}
        }
    }
}

impl EventSink for Observer {
    fn emit(&self, event: &Event) {
        lock(&self.0).observe(event);
    }

    fn interest(&self) -> Interest {
        Model::INTEREST.union(EventName::Input.into())
    }
}
