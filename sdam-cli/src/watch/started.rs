//! A started topology and the receivers of its events.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use sdam::{Runtime, Topology};
use sdam_core::{options::Options, time::Instant, topology::TopologyDescription};
use sdam_events::{
    channel::{self, EventStream},
    facts::Facts,
    record::{Origin, RecordSink},
};

use super::{
    Arguments,
    full::{Feed, Setup},
    hook,
    model::Model,
    tape::Tape,
};
use crate::{
    failure::Failure,
    log::LogSink,
    recording::{cannot_record, create},
    terminal::Palette,
};

/// A started topology and the receivers of its events.
pub(super) struct Started {
    pub(super) topology: Topology,
    pub(super) events: EventStream,
    pub(super) recording: Option<Arc<RecordSink<Tape>>>,
    tape: Option<(Tape, Option<PathBuf>)>,
    /// The topology changes for the program given by `--on-change`.
    pub(super) changes: Option<UnboundedReceiver<Arc<TopologyDescription>>>,
    clock: Box<dyn Fn() -> Instant>,
}

impl Started {
    pub(super) fn new(
        runtime: Runtime,
        options: Options,
        arguments: &Arguments,
        notes: &UnboundedSender<String>,
    ) -> Result<Self, Failure> {
        let clock = Arc::clone(&runtime.backend.clock);
        let clock: Box<dyn Fn() -> Instant> = Box::new(move || clock.now());
        let tape = match &arguments.record {
            Some(path) => Some((Tape::of(create(path)?, notes.clone()), Some(path.clone()))),
            // If no temporary file can be created, nothing can be saved, but watching is still
            // possible.
            None if arguments.wants_screen() => {
                Tape::temporary(notes.clone()).ok().map(|tape| (tape, None))
            }
            None => None,
        };
        let recording = match &tape {
            None => None,
            Some((tape, path)) => {
                let mut origin = Origin::at(clock(), SystemTime::now());
                origin.vantage = arguments.vantage.as_deref().map(Into::into);
                let sink = RecordSink::with_origin(tape.clone(), &options, &origin);
                let name = path.as_deref().unwrap_or(Path::new("a temporary file"));
                Some(Arc::new(sink.map_err(|error| cannot_record(name, &error))?))
            }
        };
        let (sink, events) = channel::unbounded();
        let interest = if arguments.wants_screen() { Model::INTEREST } else { Facts::INTEREST };
        let builder = arguments.target.builder(options);
        let mut builder = builder.sink(sink.interested_in(interest));
        if let Some(recording) = &recording {
            builder = builder.sink(Arc::clone(recording));
        }
        if let Some(log) = LogSink::open(arguments.log.clone()).map_err(Failure::other)? {
            builder = builder.sink(log);
        }
        let mut changes = None;
        if arguments.on_change.is_some() {
            let (change, receiver) = mpsc::unbounded();
            builder = builder.sink(hook::sink(change));
            changes = Some(receiver);
        }
        let topology = builder.start(runtime).map_err(Failure::config)?;
        Ok(Self { topology, events, recording, tape, changes, clock })
    }

    /// Returns the settings of the full screen for events from `source`.
    pub(super) fn screen(
        self,
        arguments: &Arguments,
        source: &str,
        palette: Palette,
        notes: UnboundedReceiver<String>,
    ) -> Setup {
        let options = self.topology.options().clone();
        Setup {
            wall: ((self.clock)(), SystemTime::now()),
            feed: Feed::Live { events: self.events, clock: self.clock },
            preference: options.read_preference.clone(),
            options,
            source: source.to_owned(),
            tape: self.tape,
            recording: self.recording,
            marks: VecDeque::new(),
            notes,
            ascii: arguments.ascii,
            palette,
        }
    }
}
