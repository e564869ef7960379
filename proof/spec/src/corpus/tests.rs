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
