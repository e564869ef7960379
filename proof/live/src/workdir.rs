//! Temporary directories.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of the next directory. A number is used once, because a guard may remove a directory
/// before its owner does, and must not make room for another one of the same path.
static NEXT: AtomicU32 = AtomicU32::new(0);

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
        loop {
            let serial = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{purpose}-{}-{serial}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                // A dead process had the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::WorkDir;

    #[test]
    fn a_directory_removed_by_its_guard_is_not_replaced_by_another_of_its_path() {
        let first = WorkDir::create("workdir").unwrap();
        fs::remove_dir_all(first.path()).unwrap();
        let second = WorkDir::create("workdir").unwrap();
        drop(first);
        assert!(second.path().is_dir());
    }
}
