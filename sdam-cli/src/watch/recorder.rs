//! The file in which a session is recorded; if there are several, the current one.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::SystemTime,
};

use futures::channel::mpsc::UnboundedSender;
use sdam::transport::clock::Clock;
use sdam_core::options::Options;
use sdam_events::record::{Origin, RecordSink};

use super::{Arguments, tape::Tape};
use crate::{
    failure::Failure,
    recording::{cannot_record, create},
};

/// The current recording. Everything that holds this value shares the recording.
pub(super) type Recorder = Rc<RefCell<Recorded>>;

/// A recording that is being written.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) tape: Tape,
    pub(super) sink: Arc<RecordSink<Tape>>,
    /// The path of the file; `None` if the recording is temporary.
    pub(super) path: Option<PathBuf>,
}

impl Recorded {
    /// Begins the recording of a client with these `options`, in the new file `path`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written. In that case, it is removed.
    pub(super) fn begin(
        path: &Path,
        (options, arguments, clock): (&Options, &Arguments, &dyn Clock),
        notes: &UnboundedSender<String>,
    ) -> Result<Self, Failure> {
        let tape = Tape::of(create(path)?, notes.clone());
        Self::on(tape, Some(path), (options, arguments, clock)).inspect_err(|_| {
            // Remove only a regular file, and not a device.
            if fs::metadata(path).is_ok_and(|it| it.is_file()) {
                let _ = fs::remove_file(path);
            }
        })
    }

    /// Begins a recording on `tape`.
    pub(super) fn on(
        tape: Tape,
        path: Option<&Path>,
        (options, arguments, clock): (&Options, &Arguments, &dyn Clock),
    ) -> Result<Self, Failure> {
        let mut origin = Origin::at(clock.now(), SystemTime::now());
        origin.vantage = arguments.vantage.as_deref().map(Into::into);
        let sink = RecordSink::with_origin(tape.clone(), options, &origin);
        let name = path.unwrap_or(Path::new("a temporary file"));
        let sink = Arc::new(sink.map_err(|error| cannot_record(name, &error))?);
        Ok(Self { tape, sink, path: path.map(Path::to_owned) })
    }

    /// Returns the name of the file, for messages.
    pub(super) fn name(&self) -> String {
        self.path.as_deref().unwrap_or(Path::new("a temporary file")).display().to_string()
    }
}
