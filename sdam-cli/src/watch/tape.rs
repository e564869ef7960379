//! The file of a recording, which can be copied under another name while it is being written.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The maximum size of an unnamed recording, of which the user may be unaware.
const LIMIT: u64 = 1 << 30;
/// The number of bytes to copy at once.
const PIECE: usize = 1 << 20;

/// The file of a recording. Clones write to the same file.
#[derive(Clone, Debug)]
pub(super) struct Tape(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Mutex<BufWriter<File>>,
    length: AtomicU64,
    limit: u64,
    has_stopped: AtomicBool,
}

impl Tape {
    /// Takes the empty `file`, which must be readable and writable.
    pub(super) fn of(file: File) -> Self {
        Self::new(file, u64::MAX)
    }

    /// Creates an unnamed file in the folder for temporary files, limited to 1 GiB. The system
    /// removes it when the program ends for any reason.
    pub(super) fn temporary() -> io::Result<Self> {
        Ok(Self::new(tempfile::tempfile()?, LIMIT))
    }

    fn new(file: File, limit: u64) -> Self {
        Self(Arc::new(Shared {
            file: Mutex::new(BufWriter::new(file)),
            length: AtomicU64::new(0),
            limit,
            has_stopped: AtomicBool::new(false),
        }))
    }

    /// Returns the number of bytes.
    pub(super) fn length(&self) -> u64 {
        self.0.length.load(Ordering::Relaxed)
    }

    /// Returns whether writing has failed or has reached the limit, so that the rest is missing.
    pub(super) fn has_stopped(&self) -> bool {
        self.0.has_stopped.load(Ordering::Relaxed)
    }

    /// Copies everything written so far to the new file `path`; returns the number of bytes.
    ///
    /// Writers wait only while a piece is being read.
    ///
    /// # Errors
    ///
    /// If the file already exists or cannot be written.
    pub(super) fn save(&self, path: &Path) -> io::Result<u64> {
        let mut copy = File::options().write(true).create_new(true).open(path)?;
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
        let mut file = self.lock();
        file.seek(SeekFrom::Start(from))?;
        let read = file.get_mut().read_exact(piece);
        file.seek(SeekFrom::End(0))?;
        read
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.lock();
        let length = self.length() + bytes.len() as u64;
        if length > self.0.limit {
            let words = format!("the recording has {} bytes, its limit", self.length());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
        }
        file.write_all(bytes)?;
        self.0.length.store(length, Ordering::Relaxed);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BufWriter<File>> {
        self.0.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Tape {
    /// Writes all of `bytes`, or nothing if they exceed the limit.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.append(bytes);
        if written.is_err() {
            self.0.has_stopped.store(true, Ordering::Relaxed);
        }
        written.map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock().flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_written_so_far_is_saved_and_writing_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut tape = Tape::temporary().unwrap();
        tape.write_all(b"one ").unwrap();
        let first = folder.path().join("first");
        assert_eq!(tape.save(&first).unwrap(), 4);
        let much = vec![b'x'; 2 * PIECE + 1];
        tape.write_all(&much).unwrap();
        let second = folder.path().join("second");
        assert_eq!(tape.save(&second).unwrap(), tape.length());
        assert_eq!(fs::read(&first).unwrap(), b"one ");
        assert_eq!(fs::read(&second).unwrap(), [&b"one "[..], &*much].concat());
        // An existing file is kept.
        let error = tape.save(&first).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn nothing_is_written_beyond_the_limit() {
        let mut tape = Tape::new(tempfile::tempfile().unwrap(), 5);
        tape.write_all(b"12345").unwrap();
        assert!(!tape.has_stopped());
        let error = tape.write_all(b"6").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(tape.has_stopped());
        assert_eq!(tape.length(), 5);
    }
}
