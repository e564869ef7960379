//! A started topology, and what it passes to the screen.

use std::{sync::Arc, time::SystemTime};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender};
use sdam::{Clock, Runtime, Topology};
use sdam_core::options::Options;
use sdam_events::{
    channel::{self, EventStream},
    facts::Facts,
    record::Origin,
};

use super::{
    Arguments,
    model::Model,
    tape::{Recorded, Tape},
};
use crate::{failure::Failure, log::LogSink, terminal::Palette};

/// A started topology, its events, and its recording.
pub(super) struct Started {
    pub(super) topology: Topology,
    pub(super) events: EventStream,
    pub(super) recorded: Option<Recorded>,
    clock: Arc<dyn Clock>,
}

/// The settings of a full screen, and the data that it shows.
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the full screen reads it"))]
pub(super) struct Setup {
    pub(super) events: EventStream,
    /// The clock of the events.
    pub(super) clock: Arc<dyn Clock>,
    /// The options of the client that produces the events.
    pub(super) options: Options,
    /// The kind of deployment: `LIVE` or `DEMO`.
    pub(super) source: &'static str,
    /// The recording that is being written.
    pub(super) recorded: Option<Recorded>,
    /// The steps of the demonstration.
    pub(super) notes: UnboundedReceiver<String>,
    pub(super) palette: Palette,
}

impl Started {
    pub(super) fn new(
        runtime: Runtime,
        options: Options,
        arguments: &Arguments,
        notes: &UnboundedSender<String>,
    ) -> Result<Self, Failure> {
        let clock = Arc::clone(&runtime.backend.clock);
        let origin = Origin::at(clock.now(), SystemTime::now());
        let recorded = match &arguments.record {
            Some(path) => Some(Recorded::begin(path, &options, &origin, notes)?),
            // Without a temporary file, watching is still possible, but the recording cannot be
            // saved.
            None if arguments.wants_screen() => {
                let tape = Tape::temporary(notes.clone()).ok();
                tape.map(|tape| Recorded::on(tape, None, &options, &origin)).transpose()?
            }
            None => None,
        };
        let (sink, events) = channel::unbounded();
        let interest = if arguments.wants_screen() { Model::INTEREST } else { Facts::INTEREST };
        let builder = arguments.target.builder(options);
        let mut builder = builder.sink(sink.interested_in(interest));
        if let Some(recorded) = &recorded {
            builder = builder.sink(Arc::clone(&recorded.sink));
        }
        if let Some(log) = LogSink::open(arguments.log.clone()).map_err(Failure::other)? {
            builder = builder.sink(log);
        }
        let topology = builder.start(runtime).map_err(Failure::config)?;
        Ok(Self { topology, events, recorded, clock })
    }

    /// Returns the settings of the full screen for events from `source`.
    pub(super) fn screen(
        self,
        source: &'static str,
        palette: Palette,
        notes: UnboundedReceiver<String>,
    ) -> Setup {
        Setup {
            events: self.events,
            clock: self.clock,
            options: self.topology.options().clone(),
            source,
            recorded: self.recorded,
            notes,
            palette,
        }
    }
}
