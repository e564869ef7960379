//! Temporary directories.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Returns the workspace's build directory, which git ignores and `cargo clean` removes.
pub fn target_dir() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = own.ancestors().nth(2).unwrap_or(Path::new("."));
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => workspace.join(dir),
        _ => workspace.join("target"),
    }
}

/// Creates a directory below `target/live` whose name begins with `purpose`; it is removed on drop.
pub(crate) fn work_dir(purpose: &str) -> io::Result<TempDir> {
    work_dir_in(&target_dir().join("live"), purpose)
}

/// Creates a directory in `parent`. If `parent` is missing, it is created as well.
pub(crate) fn work_dir_in(parent: &Path, purpose: &str) -> io::Result<TempDir> {
    fs::create_dir_all(parent)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(&format!("{purpose}-")).tempdir_in(parent)
}
