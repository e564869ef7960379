//! Tests that the runner reports every failure, skipped file and missing file.

use std::sync::mpsc;
use std::time::Duration;

use sdam_spec::corpus::File;
use sdam_spec::requirement::{Environment, Kind};
use serde_json::json;

use super::report::Totals;
use super::*;

fn cell(passed: usize, failed: &[(&str, &str)], skipped: &[&str]) -> Cell {
    let own = |text: &&str| (*text).to_owned();
    let failed = failed.iter().map(|(file, difference)| (own(file), own(difference))).collect();
    Cell { passed, failed, skipped: skipped.iter().map(own).collect(), ..Cell::default() }
}

fn report(cells: impl IntoIterator<Item = (&'static str, &'static str, Cell)>) -> Report {
    let mut report = Report::default();
    for (suite, runtime, cell) in cells {
        report.add(suite, runtime, cell);
    }
    report
}

#[test]
fn a_report_is_a_success_only_if_everything_was_run_and_passed() {
    let check = |cell: Cell, summary: &str, success: bool| {
        let report = report([("rs", "pure", cell)]);
        let scope = Totals::default();
        assert_eq!(report.summary("new"), format!("spec-test: {summary}; {scope}; new"));
        assert_eq!(report.verdict().is_ok(), success, "{summary}");
    };
    check(cell(2, &[], &[]), "2 passed, 0 failed, 0 skipped", true);
    check(cell(2, &[("a.json", "differs")], &[]), "2 passed, 1 failed, 0 skipped", false);
    check(cell(2, &[], &["a.json"]), "2 passed, 0 failed, 1 skipped", false);
    check(cell(0, &[], &[]), "0 passed, 0 failed, 0 skipped", false);
}

#[test]
fn a_report_names_failures_with_file_runtime_and_difference() {
    let failed = [("a.json", "phase 2: type is \"Unknown\", expected \"Mongos\"")];
    let report = report([
        ("rs", "pure", cell(2, &failed, &["b.json"])),
        ("uri-options", "pure", cell(12, &[], &[])),
        ("rs", "smol", cell(4, &[], &[])),
        ("uri-options", "smol", Cell::default()),
    ]);
    let expected = "\
passed/failed/skipped       pure       smol
rs               2/1/1      4/0/0
uri-options     12/0/0          -
runs of tests on deployments 0  0
FAILED rs/a.json [pure]: phase 2: type is \"Unknown\", expected \"Mongos\"
SKIPPED rs/b.json [pure]
";
    let (rows, expected) = (report.to_string(), expected.to_owned());
    assert_eq!(
        rows.split_whitespace().collect::<Vec<_>>(),
        expected.split_whitespace().collect::<Vec<_>>()
    );
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    let first = json!({
        "suite": "rs", "runtime": "pure", "passed": 2, "failed": 1, "skipped": 1, "runs": 0,
    });
    assert_eq!(json["results"][0], first);
    assert_eq!(json["results"].as_array().unwrap().len(), 3);
}

#[test]
fn unknown_names_are_refused_with_a_list_of_the_known_ones() {
    let names = |name: &str| [name.to_owned()];
    let error = choose_suites(&names("sr")).unwrap_err().to_string();
    assert!(error.starts_with("no such suite: sr; there are "), "{error}");
    assert!(error.contains("server-selection/rtt"), "{error}");
    let error = choose_columns(&names("glommio")).unwrap_err().to_string();
    assert!(error.starts_with("no such runtime: glommio; there are pure"), "{error}");
    assert_eq!(choose_suites(&names("errors")).unwrap().len(), 1);
    assert_eq!(choose_suites(&[]).unwrap().len(), Suite::ALL.len());
    assert_eq!(choose_columns(&names("pure")).unwrap(), [Column::Pure]);
}

fn rtt_file(name: &str, expected: f64) -> File {
    File {
        name: name.to_owned(),
        json: json!({ "avg_rtt_ms": 10.0, "new_rtt_ms": 20.0, "new_avg_rtt": expected }),
    }
}

fn rtt_suite() -> &'static Suite {
    choose_suites(&["rtt".to_owned()]).unwrap()[0]
}

#[test]
fn a_wrong_expectation_fails_with_the_difference() {
    let jobs = [(rtt_suite(), vec![rtt_file("right", 12.0), rtt_file("wrong", 13.0)])];
    let cells = runner::run(Column::Pure, &jobs, false);
    assert_eq!(cells[0].passed, 1);
    let difference = "the average is Some(12.0), expected 13";
    assert_eq!(cells[0].failed, [("wrong".to_owned(), difference.to_owned())]);
}

#[test]
fn a_hanging_check_fails_and_the_files_after_it_are_skipped() {
    let files = ["first", "second", "third"].map(|name| rtt_file(name, 12.0));
    let jobs = [(rtt_suite(), files.to_vec())];
    let (verdicts, receiver) = mpsc::channel();
    verdicts.send((0, Ok(None))).unwrap();
    let check = |difference: &str, receiver: &mpsc::Receiver<_>, passed: usize| {
        let cells = runner::collect(&jobs, &[1; 3], Duration::ZERO, receiver);
        assert_eq!(cells[0].passed, passed);
        assert_eq!(cells[0].failed[0].1, difference);
        assert_eq!(cells[0].skipped.last().unwrap(), "third");
    };
    check("no result within 0ns", &receiver, 1);
    drop(verdicts);
    check("the check panicked", &receiver, 0);
}

#[test]
fn a_report_says_where_each_file_ran_and_whether_a_driver_would_have_a_part_in_it() {
    let on =
        |kind, release| Environment { kind, release, authentication: kind == Kind::ReplicaSet };
    let single = on(Kind::Single, [8, 0, 5]);
    let older = on(Kind::Single, [4, 2, 25]);
    let suite = choose_suites(&["sessions".to_owned()]).unwrap()[0];
    let mut report = Report::default();
    for (column, environments) in
        [("tokio", vec![single]), ("sim", vec![single, older, on(Kind::ReplicaSet, [5, 0, 31])])]
    {
        let ran = vec![("a".to_owned(), environments.clone()), ("b".to_owned(), environments)];
        report.add(suite.name(), column, Cell { passed: 2, ran, ..Cell::default() });
    }
    for (name, call) in [("a", "insertOne"), ("b", "createFindCursor")] {
        let json = json!({ "tests": [{ "operations": [{ "name": call }] }] });
        report.cover(suite, &File { name: name.to_owned(), json });
    }
    let places = "[tokio, sim]: single 4.2 8.0; replicaset 5.0*;\n";
    let lines = format!("sessions/a {places}sessions/b (with a stand-in) {places}");
    assert!(report.to_string().contains(&lines), "{report}");
    let scope = "2 files with 2 tests, 0 of them left out; in 1 of the files, the tests stand in \
                 for a driver";
    assert_eq!(report.scope.to_string(), scope);
}

#[test]
fn real_servers_are_columns_only_if_they_are_named() {
    assert_eq!(choose_columns(&[]).unwrap(), Column::ALL);
    let chosen = choose_columns(&["mongod-4.2".to_owned(), "scan".to_owned()]).unwrap();
    let names: Vec<_> = chosen.into_iter().map(Column::name).collect();
    assert_eq!(names, ["scan", "mongod-4.2"]);
    assert!(choose_columns(&["mongod-3.6".to_owned()]).is_err());
}

#[test]
fn a_file_that_did_not_run_on_any_deployment_has_not_passed() {
    let suite = choose_suites(&["mongodb-handshake".to_owned()]).unwrap()[0];
    let jobs = [(suite, vec![rtt_file("nowhere", 1.0), rtt_file("somewhere", 1.0)])];
    let (verdicts, receiver) = mpsc::channel();
    let single = Environment { kind: Kind::Single, release: [6, 0, 5], authentication: false };
    verdicts.send((1, Ok(Some(single)))).unwrap();
    let cells = runner::collect(&jobs, &[0, 1], Duration::ZERO, &receiver);
    assert_eq!((cells[0].passed, cells[0].failed.len()), (1, 0));
    assert_eq!(cells[0].ran, [("somewhere".to_owned(), vec![single])]);
}
