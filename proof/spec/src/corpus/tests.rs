use tempfile::TempDir;

use super::*;

/// A temporary folder that is removed on drop.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes `count` files to the path of `folder` below `root`.
    fn fill(&self, root: &str, folder: &str, count: usize) {
        let path = self.path().join(root).join(folder).join("nested");
        fs::create_dir_all(&path).unwrap();
        for number in 0..count {
            fs::write(path.join(format!("{number}.json")), number.to_string()).unwrap();
            fs::write(path.join(format!("{number}.yml")), "").unwrap();
        }
    }
}

#[test]
fn both_layouts_are_found_at_and_above_their_root() {
    let check = |name: &str, below: &str, folder: &str| {
        let scratch = Scratch::new();
        scratch.fill(below, folder, 88);
        let corpus = Corpus::open(scratch.path()).unwrap();
        assert_eq!(corpus.files(SERVER_SELECTION).unwrap().len(), 88, "{name}");
    };
    check("source", "", "server-selection/tests/server_selection");
    check("clone", "source", "server-selection/tests/server_selection");
    check("test", "", "server_selection/server_selection");
    check("sdist", "test", "server_selection/server_selection");
    let empty = Scratch::new();
    assert!(Corpus::open(empty.path()).is_err());
}

#[test]
fn a_missing_file_is_an_error() {
    let scratch = Scratch::new();
    scratch.fill("", SERVER_SELECTION.name(), 87);
    let corpus = Corpus::open(scratch.path()).unwrap();
    let error = corpus.files(SERVER_SELECTION).unwrap_err();
    assert!(error.contains("87") && error.contains("88"), "{error}");
    let error = corpus.files(MAX_STALENESS).unwrap_err();
    assert!(error.contains("cannot list"), "{error}");
}

#[test]
fn excluded_files_of_a_folder_are_not_counted() {
    let scratch = Scratch::new();
    scratch.fill("", SERVER_SELECTION.name(), 88);
    scratch.fill("", TIMEOUTS.name(), 3);
    let folder = scratch.path().join(TIMEOUTS.name());
    for name in TIMEOUTS.only.unwrap() {
        fs::write(folder.join(format!("{name}.json")), "{}").unwrap();
    }
    let corpus = Corpus::open(scratch.path()).unwrap();
    assert_eq!(corpus.files(TIMEOUTS).unwrap().len(), 18);
}

#[test]
fn the_log_level_that_the_copy_changed_is_restored() {
    let scratch = Scratch::new();
    scratch.fill("test", "server_selection/server_selection", 88);
    scratch.fill("test", "server_selection_logging", 4);
    let message = |text: &str, level: &str| {
        format!(r#"[{{"messages":[{{"level":"{level}","data":{{"message":"{text}"}}}}]}}]"#)
    };
    let folder = scratch.path().join("test/server_selection_logging");
    for (text, restored) in [
        ("Waiting for suitable server to become available", "info"),
        ("Server selection started", "debug"),
    ] {
        fs::write(folder.join("a.json"), message(text, "debug")).unwrap();
        let corpus = Corpus::open(scratch.path()).unwrap();
        let files = corpus.files(SELECTION_LOGGING).unwrap();
        let file = files.iter().find(|file| file.name == "a.json").unwrap();
        assert_eq!(file.json[0]["messages"][0]["level"], restored, "{text}");
    }
}
