//! Directories for the lifetime of a value.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use crate::locate::target_dir;

/// A directory of this process alone, below `target/live`, removed when dropped.
#[derive(Debug)]
pub(crate) struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    /// Creates a new one; `purpose` begins its name.
    pub(crate) fn create(purpose: &str) -> io::Result<Self> {
        Self::create_in(&target_dir().join("live"), purpose)
    }

    /// Creates a new one in `parent`, which is created as well.
    pub(crate) fn create_in(parent: &Path, purpose: &str) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        for serial in 0_u32.. {
            let path = parent.join(format!("{purpose}-{}-{serial}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // What cannot be removed lies below the build directory, where it does no harm.
        let _ = fs::remove_dir_all(&self.path);
    }
}
