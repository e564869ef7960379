//! A started topology and the receivers of its events.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::SystemTime};

use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use sdam::{Runtime, Topology};
use sdam_core::{options::Options, time::Instant, topology::TopologyDescription};
use sdam_events::{
    channel::{self, EventStream},
    facts::Facts,
    record::Origin,
};

use super::{
    Arguments, hook,
    model::Model,
    parts::Parts,
    recorder::{Recorded, Recorder},
    setup::{Feed, Setup},
    tape::Tape,
};
use crate::{failure::Failure, log::LogSink, terminal::Palette};

/// A started topology and the receivers of its events.
pub(super) struct Started {
    pub(super) topology: Topology,
    pub(super) events: EventStream,
    pub(super) recorder: Option<Recorder>,
    /// The clients that write a recording in parts.
    pub(super) parts: Option<Parts>,
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
        let client = (&options, arguments, &*clock);
        let (mut parts, mut own) = (None, None);
        match (&arguments.record, arguments.record_max) {
            (Some(path), Some(limit)) => {
                let limited = (&**path, limit);
                parts = Some(Parts::start(&runtime, &options, arguments, limited, notes)?);
            }
            (Some(path), None) => own = Some(Recorded::begin(path, client, notes)?),
            // Without a temporary file, watching is still possible, but the recording cannot be
            // saved.
            (None, _) if arguments.wants_screen() => {
                let tape = Tape::temporary(notes.clone()).ok();
                own = tape.map(|tape| Recorded::on(tape, None, client)).transpose()?;
            }
            (None, _) => {}
        }
        let (sink, events) = channel::unbounded();
        let interest = if arguments.wants_screen() { Model::INTEREST } else { Facts::INTEREST };
        let builder = arguments.target.builder(options);
        let mut builder = builder.sink(sink.interested_in(interest));
        if let Some(own) = &own {
            builder = builder.sink(Arc::clone(&own.sink));
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
        let clock: Box<dyn Fn() -> Instant> = Box::new(move || clock.now());
        let recorder = match &parts {
            Some(parts) => Some(Rc::clone(&parts.recorder)),
            None => own.map(|own| Rc::new(RefCell::new(own))),
        };
        Ok(Self { topology, events, recorder, parts, changes, clock })
    }

    /// Returns the settings of the full screen for events from `source`.
    pub(super) fn screen(
        self,
        arguments: &Arguments,
        source: &str,
        palette: Palette,
        notes: UnboundedReceiver<String>,
    ) -> Setup {
        Setup {
            wall: Origin::at((self.clock)(), SystemTime::now()),
            feed: Feed::Live { events: self.events, clock: self.clock },
            options: self.topology.options().clone(),
            source: source.to_owned(),
            recorder: self.recorder,
            marks: Vec::new().into_iter().peekable(),
            notes,
            ascii: arguments.ascii,
            palette,
        }
    }
}
