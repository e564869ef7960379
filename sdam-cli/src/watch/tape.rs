//! The recording of a session, which can be copied to another file while it is being written.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures::channel::mpsc::UnboundedSender;
use sdam_core::options::Options;
use sdam_events::record::{Origin, RecordSink};

use crate::{
    exit::Failure,
    output::lock,
    recording::{cannot_record, create, private},
};

/// The maximum size of an unnamed recording, of which the user may be unaware.
const LIMIT: u64 = 1 << 30;
/// The number of bytes to copy at once.
const PIECE: usize = 1 << 20;

/// A recording that is being written.
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the full screen reads it all"))]
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
        options: &Options,
        origin: &Origin,
        notes: &UnboundedSender<String>,
    ) -> Result<Self, Failure> {
        let tape = Tape::of(create(path)?, notes.clone());
        Self::on(tape, Some(path), options, origin).inspect_err(|_| {
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
        options: &Options,
        origin: &Origin,
    ) -> Result<Self, Failure> {
        let sink = RecordSink::with_origin(tape.clone(), options, origin);
        let name = path.unwrap_or(Path::new("a temporary file"));
        let sink = Arc::new(sink.map_err(|error| cannot_record(name, &error))?);
        Ok(Self { tape, sink, path: path.map(Path::to_owned) })
    }
}

/// The file of a recording. Clones write to the same file.
#[derive(Clone, Debug)]
pub(super) struct Tape(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Mutex<BufWriter<File>>,
    length: AtomicU64,
    limit: u64,
    has_stopped: AtomicBool,
    /// The channel that tells the user why writing has failed.
    notes: UnboundedSender<String>,
}

impl Tape {
    /// Creates a tape from the empty `file`, which must be readable and writable.
    pub(super) fn of(file: File, notes: UnboundedSender<String>) -> Self {
        Self::new(file, u64::MAX, notes)
    }

    /// Creates an unnamed file in the folder for temporary files, limited to 1 GiB. The system
    /// removes it when the program ends for any reason.
    pub(super) fn temporary(notes: UnboundedSender<String>) -> io::Result<Self> {
        Ok(Self::new(tempfile::tempfile()?, LIMIT, notes))
    }

    fn new(file: File, limit: u64, notes: UnboundedSender<String>) -> Self {
        Self(Arc::new(Shared {
            file: Mutex::new(BufWriter::new(file)),
            length: AtomicU64::new(0),
            limit,
            has_stopped: AtomicBool::new(false),
            notes,
        }))
    }

    /// Returns the number of bytes written.
    pub(super) fn length(&self) -> u64 {
        self.0.length.load(Ordering::Relaxed)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = lock(&self.0.file);
        let length = self.length() + bytes.len() as u64;
        if length > self.0.limit {
            let words = format!("the recording has {} bytes, its limit", self.length());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
        }
        file.write_all(bytes)?;
        self.0.length.store(length, Ordering::Relaxed);
        Ok(())
    }

    /// Tells the user at once when writing fails for the first time.
    fn checked<T>(&self, written: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &written
            && !self.0.has_stopped.swap(true, Ordering::Relaxed)
        {
            let note = format!("the recording has stopped at {} bytes: {error}", self.length());
            // Sending fails if the user has quit.
            let _ = self.0.notes.unbounded_send(note);
        }
        written
    }
}

#[cfg_attr(
    not(any(feature = "tui", test)),
    expect(dead_code, reason = "only the full screen uses it")
)]
impl Tape {
    /// Returns whether the recording is incomplete, because writing failed or reached the limit.
    pub(super) fn has_stopped(&self) -> bool {
        self.0.has_stopped.load(Ordering::Relaxed)
    }

    /// Copies everything written so far to the new file `path`, which only its owner can read;
    /// returns the number of bytes.
    ///
    /// Writers have to wait only while a piece of the file is being read.
    ///
    /// # Errors
    ///
    /// If the file already exists or cannot be written.
    pub(super) fn save(&self, path: &Path) -> io::Result<u64> {
        let mut copy = private(File::options().write(true).create_new(true)).open(path)?;
        let length = self.length();
        let mut copied = 0;
        while copied < length {
            let room = usize::try_from(length - copied).unwrap_or(PIECE).min(PIECE);
            let mut piece = vec![0; room];
            self.read(copied, &mut piece)?;
            copy.write_all(&piece)?;
            copied += room as u64;
        }
        Ok(copied)
    }

    fn read(&self, from: u64, piece: &mut [u8]) -> io::Result<()> {
        let mut file = lock(&self.0.file);
        file.seek(SeekFrom::Start(from))?;
        let read = file.get_mut().read_exact(piece);
        file.seek(SeekFrom::End(0))?;
        read
    }
}

impl Write for Tape {
    /// Writes all of `bytes`, or nothing if they would exceed the limit.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.append(bytes);
        self.checked(written).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = lock(&self.0.file).flush();
        self.checked(flushed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use futures::channel::mpsc::{UnboundedReceiver, unbounded};

    use super::*;

    fn temporary(limit: u64) -> (Tape, UnboundedReceiver<String>) {
        let (notes, heard) = unbounded();
        (Tape::new(tempfile::tempfile().unwrap(), limit, notes), heard)
    }

    #[test]
    fn what_was_written_so_far_is_saved_and_writing_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (mut tape, _heard) = temporary(LIMIT);
        tape.write_all(b"one ").unwrap();
        let first = folder.path().join("first");
        assert_eq!(tape.save(&first).unwrap(), 4);
        let much = vec![b'x'; 2 * PIECE + 1];
        tape.write_all(&much).unwrap();
        let second = folder.path().join("second");
        assert_eq!(tape.save(&second).unwrap(), tape.length());
        assert_eq!(fs::read(&first).unwrap(), b"one ");
        assert_eq!(fs::read(&second).unwrap(), [&b"one "[..], &*much].concat());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;

            let mode = fs::metadata(&first).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "only the owner can read it");
        }
        // An existing file is not overwritten.
        let error = tape.save(&first).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn nothing_is_written_beyond_the_limit() {
        let (mut tape, mut heard) = temporary(5);
        tape.write_all(b"12345").unwrap();
        assert!(!tape.has_stopped());
        let error = tape.write_all(b"6").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(tape.has_stopped());
        assert_eq!(tape.length(), 5);
        let note = heard.try_recv().unwrap();
        assert!(note.starts_with("the recording has stopped at 5 bytes: "), "{note}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported_once_and_at_once() {
        let (notes, mut heard) = unbounded();
        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        let mut tape = Tape::of(full, notes);
        for _ in 0..2 {
            tape.write_all(b"a line").unwrap();
            assert_eq!(tape.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        assert!(tape.has_stopped());
        assert!(heard.try_recv().unwrap().contains("No space left"));
        assert!(heard.try_recv().is_err());
    }
}
