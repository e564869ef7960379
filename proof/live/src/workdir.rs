//! Temporary directories.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

/// Returns the workspace's build directory, which git ignores and `cargo clean` removes.
pub fn target_dir() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = own.ancestors().nth(2).unwrap_or(Path::new("."));
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => workspace.join(dir),
        _ => workspace.join("target"),
    }
}

/// A directory of this process below `target/live`, removed on drop.
#[derive(Debug)]
pub(crate) struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    /// Creates a directory whose name begins with `purpose`.
    pub(crate) fn create(purpose: &str) -> io::Result<Self> {
        Self::create_in(&target_dir().join("live"), purpose)
    }

    /// Creates a directory in `parent`, which is created if it is missing.
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
        // An undeleted directory is harmless below the build directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}
