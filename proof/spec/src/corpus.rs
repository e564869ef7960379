//! The locations of the test files, and the number of files required in each location.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::suite::Suite;

/// A folder of test files, with the required number of files.
#[derive(Clone, Copy, Debug)]
pub struct Folder {
    /// The path below `source/` in the specifications' repository, without the segment `tests`,
    /// which follows the first segment there. Reports use this path as the name of the folder.
    pub(crate) name: &'static str,
    /// The path below `test/` in a source distribution of PyMongo.
    pymongo: &'static str,
    /// The number of files in the specifications, and in PyMongo.
    counts: [usize; 2],
    /// The names of the files to run, if the location also contains files that do not belong to
    /// this folder; otherwise empty.
    only: &'static [&'static str],
}

impl Folder {
    pub(crate) const fn new(name: &'static str, pymongo: &'static str, files: usize) -> Self {
        Self { name, pymongo, counts: [files; 2], only: &[] }
    }

    /// Sets the number of files in PyMongo, if it differs from the number in the specifications.
    pub(crate) const fn in_pymongo(self, files: usize) -> Self {
        Self { counts: [self.counts[0], files], ..self }
    }

    fn specifications(self) -> PathBuf {
        let (first, rest) = self.name.split_once('/').unwrap_or((self.name, ""));
        Path::new(first).join("tests").join(rest)
    }

    pub(crate) const fn only(self, only: &'static [&'static str]) -> Self {
        Self { only, ..self }
    }
}

/// The test files on disk.
#[derive(Clone, Debug)]
pub struct Corpus {
    root: PathBuf,
    layout: Layout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Specifications,
    PyMongo,
}

/// One test file.
#[derive(Clone, Debug)]
pub struct File {
    /// The path below the folder.
    pub name: String,
    /// The content of the file.
    pub json: Value,
}

impl Corpus {
    /// Opens the corpus at `root`. This may be a clone of the specifications' repository, the
    /// clone's `source` folder, a source distribution of PyMongo, or the distribution's `test`
    /// folder.
    pub fn open(root: &Path) -> Result<Self, String> {
        let layouts = [
            ("", Layout::Specifications),
            ("source", Layout::Specifications),
            ("", Layout::PyMongo),
            ("test", Layout::PyMongo),
        ];
        let first = Suite::ALL[0].folder;
        for (below, layout) in layouts {
            let corpus = Self { root: root.join(below), layout };
            if corpus.path(first).is_dir() {
                return Ok(corpus);
            }
        }
        Err(format!(
            "{} is neither the specifications' repository nor a source distribution of PyMongo: \
             there is no {} in it",
            root.display(),
            first.specifications().display()
        ))
    }

    /// Returns the root of the corpus, which can be passed to [`open`](Self::open) again.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads the JSON files in `folder` and its subfolders, sorted by path.
    ///
    /// # Errors
    ///
    /// If the folder does not contain the required number of files, or a file cannot be read.
    pub fn files(&self, folder: Folder) -> Result<Vec<File>, String> {
        let path = self.path(folder);
        let files = self.paths(folder)?;
        let files = files.iter().map(|file| {
            let mut file = read(file, &path)?;
            if self.layout == Layout::PyMongo {
                restore_level(&mut file.json);
                remove_refused_option(&mut file.json);
            }
            Ok(file)
        });
        files.collect()
    }

    /// Returns the paths of the JSON files in `folder` and its subfolders, sorted.
    fn paths(&self, folder: Folder) -> Result<Vec<PathBuf>, String> {
        let path = self.path(folder);
        let mut paths = Vec::new();
        collect(&path, &mut paths)?;
        paths.retain(|path| {
            let name = path.file_stem().unwrap_or_default();
            folder.only.is_empty() || folder.only.iter().any(|own| *own == name)
        });
        if self.layout == Layout::PyMongo {
            paths.retain(|path| !OUTDATED.iter().any(|file| path.ends_with(file)));
            paths.retain(|path| !is_of_refused_option(path));
        }
        paths.sort();
        let expected = folder.counts[usize::from(self.layout == Layout::PyMongo)];
        if paths.len() != expected {
            return Err(format!(
                "{} has {} test files, but should have {expected}: the corpus is incomplete or of \
                 another version",
                path.display(),
                paths.len()
            ));
        }
        Ok(paths)
    }

    /// Returns the digest of all files of all suites, with their names: SHA-256, in hexadecimal
    /// digits.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`files`](Self::files).
    pub fn digest(&self) -> Result<String, String> {
        let mut digest = Sha256::new();
        for suite in Suite::ALL {
            let folder = self.path(suite.folder);
            for path in self.paths(suite.folder)? {
                let name = path.strip_prefix(&folder).unwrap_or(&path);
                digest.update(name.to_string_lossy().as_bytes());
                digest.update(fs::read(&path).map_err(|error| unreadable(&path, &error))?);
            }
        }
        Ok(digest
            .finalize()
            .iter()
            .fold(String::new(), |digits, byte| digits + &format!("{byte:02x}")))
    }

    fn path(&self, folder: Folder) -> PathBuf {
        self.root.join(match self.layout {
            Layout::Specifications => folder.specifications(),
            Layout::PyMongo => folder.pymongo.into(),
        })
    }
}

/// The files whose copies in PyMongo are outdated. In one test, a connection is closed before the
/// pool is cleared; the specification has since corrected this order. In another test, a cursor
/// returns its connection after an error from `getMore`.
const OUTDATED: [&str; 4] = [
    "connection_logging/connection-logging.json",
    "connection_monitoring/pool-create-min-size-error.json",
    "load_balancer/cursors.json",
    "load_balancer/sdam-error-handling.json",
];

/// An option in PyMongo's files that this project does not support, because it disables the rule
/// that servers must belong to the domain of the connection string. The option is treated as
/// unknown.
const REFUSED_OPTION: &str = "srvAllowedHostsSuffix";

fn is_of_refused_option(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(REFUSED_OPTION)
}

fn remove_refused_option(file: &mut Value) {
    let is_of_it = |test: &Value| {
        let uri = test.get("uri").and_then(Value::as_str);
        uri.is_some_and(|uri| uri.contains(REFUSED_OPTION))
    };
    if let Some(Value::Array(tests)) = file.get_mut("tests") {
        tests.retain(|test| !is_of_it(test));
    }
}

/// Restores the level of one log message. PyMongo logs everything at level debug, so its copies of
/// the files contain `debug` where the specification has `info`.
fn restore_level(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(restore_level),
        Value::Object(fields) => {
            let data = fields.get("data");
            let text = data.and_then(|data| data.get("message")?.as_str());
            if text == Some("Waiting for suitable server to become available") {
                fields.insert("level".to_owned(), "info".into());
            }
            fields.values_mut().for_each(restore_level);
        }
        _ => {}
    }
}

/// Adds the JSON files below `folder` to `paths`.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let describe = |error| format!("cannot list {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(describe)? {
        let path = entry.map_err(describe)?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &dyn fmt::Display) -> String {
    format!("cannot read {}: {error}", path.display())
}

fn read(path: &Path, folder: &Path) -> Result<File, String> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Ok(File {
        name: path.strip_prefix(folder).unwrap_or(path).display().to_string(),
        json: serde_json::from_str(&text).map_err(|error| unreadable(path, &error))?,
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn folder(name: &str) -> Folder {
        let suite = Suite::ALL.iter().find(|suite| suite.name() == name);
        suite.unwrap().folder
    }

    /// Writes `count` files to the path of `folder` below `root`.
    fn fill(root: &TempDir, folder: &str, count: usize) {
        let path = root.path().join(folder).join("nested");
        fs::create_dir_all(&path).unwrap();
        for number in 0..count {
            fs::write(path.join(format!("{number}.json")), number.to_string()).unwrap();
            fs::write(path.join(format!("{number}.yml")), "").unwrap();
        }
    }

    #[test]
    fn both_layouts_are_found_at_and_above_their_root() {
        for folder in [
            "server-discovery-and-monitoring/tests/rs",
            "source/server-discovery-and-monitoring/tests/rs",
            "discovery_and_monitoring/rs",
            "test/discovery_and_monitoring/rs",
        ] {
            let scratch = tempfile::tempdir().unwrap();
            fill(&scratch, folder, 77);
            let corpus = Corpus::open(scratch.path()).unwrap();
            assert_eq!(corpus.files(Suite::ALL[0].folder).unwrap().len(), 77, "{folder}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(Corpus::open(empty.path()).is_err());
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        fill(&scratch, "server-discovery-and-monitoring/tests/rs", 76);
        let corpus = Corpus::open(scratch.path()).unwrap();
        let error = corpus.files(Suite::ALL[0].folder).unwrap_err();
        assert!(error.contains("76") && error.contains("77"), "{error}");
        let error = corpus.files(folder("max-staleness")).unwrap_err();
        assert!(error.contains("cannot list"), "{error}");
    }

    #[test]
    fn excluded_files_of_a_folder_are_not_counted() {
        let scratch = tempfile::tempdir().unwrap();
        fill(&scratch, "server-discovery-and-monitoring/tests/rs", 77);
        let timeouts = folder("client-side-operations-timeout");
        let path = "client-side-operations-timeout/tests";
        fill(&scratch, path, 3);
        for name in timeouts.only {
            fs::write(scratch.path().join(path).join(format!("{name}.json")), "{}").unwrap();
        }
        let corpus = Corpus::open(scratch.path()).unwrap();
        assert_eq!(corpus.files(timeouts).unwrap().len(), 18);
    }

    #[test]
    fn the_log_level_that_the_copy_changed_is_restored() {
        let scratch = tempfile::tempdir().unwrap();
        fill(&scratch, "test/discovery_and_monitoring/rs", 77);
        fill(&scratch, "test/server_selection_logging", 4);
        let message = |text: &str, level: &str| {
            format!(r#"[{{"messages":[{{"level":"{level}","data":{{"message":"{text}"}}}}]}}]"#)
        };
        let path = scratch.path().join("test/server_selection_logging/a.json");
        for (text, restored) in [
            ("Waiting for suitable server to become available", "info"),
            ("Server selection started", "debug"),
        ] {
            fs::write(&path, message(text, "debug")).unwrap();
            let corpus = Corpus::open(scratch.path()).unwrap();
            let files = corpus.files(folder("server-selection/logging")).unwrap();
            let file = files.iter().find(|file| file.name == "a.json").unwrap();
            assert_eq!(file.json[0]["messages"][0]["level"], restored, "{text}");
        }
    }
}
