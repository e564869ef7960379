//! The files of a folder, held in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::cargo::files_below;

/// The contents of the files in a folder, keyed by relative path. The separator in paths is `/`.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree(BTreeMap<String, Vec<u8>>);

impl Tree {
    /// Reads a folder with all its subfolders.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let files = files_below(folder)?.into_iter().map(|path| {
            let name = path.strip_prefix(folder)?.to_string_lossy().replace('\\', "/");
            Ok((name, fs::read(&path)?))
        });
        files.collect::<Result<_>>().map(Self)
    }

    /// Returns the contents of a file, or `None` if there is no such file.
    ///
    /// # Errors
    /// If the file is not UTF-8.
    pub(super) fn text(&self, path: &str) -> Result<Option<&str>> {
        let Some(bytes) = self.0.get(path) else {
            return Ok(None);
        };
        let text = str::from_utf8(bytes).map_err(|error| format!("{path}: {error}"))?;
        Ok(Some(text))
    }

    /// Adds a file. If there is already one at this path, it is replaced.
    pub(super) fn insert(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.0.insert(path.to_owned(), content.into());
    }

    /// Adds the files of `other`, which replace files with the same paths.
    pub(super) fn lay_over(&mut self, other: &Self) {
        let files = other.0.iter();
        self.0.extend(files.map(|(path, content)| (path.clone(), content.clone())));
    }

    /// Returns the paths in order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Makes a folder equal to this tree. The time stamps of unchanged files are kept, so that
    /// cargo rebuilds only what has changed.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for stale in Self::read(folder)?.paths().filter(|path| !self.0.contains_key(*path)) {
            fs::remove_file(folder.join(stale))?;
        }
        for (path, content) in &self.0 {
            let to = folder.join(path);
            if fs::read(&to).is_ok_and(|old| old == *content) {
                continue;
            }
            fs::create_dir_all(to.parent().unwrap_or(folder))?;
            fs::write(&to, content).map_err(|error| format!("{}: {error}", to.display()))?;
        }
        Ok(())
    }
}
