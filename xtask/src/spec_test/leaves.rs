//! Changes official files, and checks that the harness detects the changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sdam_core::rng::Rng;
use sdam_spec::corpus::File;
use serde_json::{Value, json};

use super::runner::{self, Column, Job};
use super::{Suite, choose_suites, fetch};
use crate::Result;

/// The keys of expected values, in all formats.
const EXPECTED: &[&str] = &[
    "address",
    "auth",
    "credential",
    "error",
    "events",
    "expectError",
    "expectEvents",
    "expectLogMessages",
    "expectResult",
    "hosts",
    "new_avg_rtt",
    "numHosts",
    "numSeeds",
    "options",
    "outcome",
    "parsed_options",
    "seeds",
    "valid",
    "warning",
];

/// The keys of set-ups, inputs and operations, in all formats.
const GIVEN: &[&str] = &[
    "applicationErrors",
    "arguments",
    "createEntities",
    "deprioritized_servers",
    "initialData",
    "mocked_topology_state",
    "poolOptions",
    "responses",
    "runOn",
    "runOnRequirements",
    "topology_description",
];

/// The number of changed files that are run at a time.
const BATCH: usize = 32;

/// The maximum percentage of changes that may stay undetected. For example, the expected warnings
/// of a refused string are not checked, and a change may turn a test into one that is left out.
const TOLERATED: usize = 3;

/// Changes expected values, one at a time, until `limit` has passed or each value has been changed.
///
/// # Errors
/// If too many changes are not detected.
pub(crate) fn run(limit: Duration) -> Result<()> {
    let begin = Instant::now();
    let corpus = fetch::corpus()?;
    let (mut changes, mut passed, mut tried) = (Vec::new(), Vec::new(), 0);
    for suite in choose_suites(&[])? {
        for file in corpus.files(suite.folder)? {
            let file = Arc::new(file);
            let places = places(suite, &file).into_iter();
            changes.extend(places.map(|(place, part)| (suite, Arc::clone(&file), place, part)));
        }
    }
    changes.retain(|(_, file, place, part)| {
        file.json.pointer(place).is_some_and(|value| other(value, *part).is_some())
    });
    let day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 86_400;
    Rng::new(day).shuffle(&mut changes);
    println!("{} values are expected; those of day {day} come first", changes.len());
    for batch in changes.chunks(BATCH).take_while(|_| begin.elapsed() < limit) {
        let files = batch.iter().filter_map(|(suite, file, place, part)| {
            let other = other(file.json.pointer(place)?, *part)?;
            let name = format!("{}/{}{place}", suite.name(), file.name);
            Some((*suite, vec![File { name, json: changed(file, place, other)? }]))
        });
        let mut left: Vec<Job> = files.collect();
        tried += left.len();
        for column in [Column::Pure, Column::Sim] {
            let jobs: Vec<_> = left.iter().filter_map(|job| column.select(job)).collect();
            let cells = runner::run(column, &jobs, false).into_iter();
            let failed = cells.flat_map(|cell| cell.failed).map(|(name, _)| name);
            let failed: BTreeSet<_> = failed.collect();
            left.retain(|(_, files)| files.iter().all(|file| !failed.contains(&file.name)));
        }
        passed.extend(left.into_iter().flat_map(|(_, files)| files));
    }
    for File { name, .. } in &passed {
        println!("UNNOTICED {name}");
    }
    println!("{} of {tried} wrong expectations are unnoticed", passed.len());
    if tried == 0 || passed.len() * 100 > tried * TOLERATED {
        return Err(format!("more than {TOLERATED} % make no difference").into());
    }
    Ok(())
}

/// Applies every change, one at a time, to the files of a suite that runs without a runtime.
/// Returns the number of changes, and the number of changes with which the file still passes, both
/// without a runtime and in single-threaded mode. The formats allow some of these changes: for
/// example, the order of some lists does not matter, and most keys may be absent.
pub(super) fn unnoticed((suite, files): &Job) -> [usize; 2] {
    let mut counts = [0, 0];
    let Some(pure) = suite.pure else { return counts };
    for file in files {
        for (place, part) in places(suite, file) {
            let wrong = file.json.pointer(&place).map(|value| wrong(value, part));
            for json in wrong.into_iter().flatten().filter_map(|it| changed(file, &place, it)) {
                let scan = suite.scan.filter(|_| (suite.scan_covers)(&json));
                let passes = pure(&json).is_ok() && scan.is_none_or(|scan| scan(&json).is_ok());
                counts = [counts[0] + 1, counts[1] + usize::from(passes)];
            }
        }
    }
    counts
}

/// The part of a file to which a value belongs: set-ups, inputs and operations, expected values, or
/// anything else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Given,
    Expected,
    Neither,
}

/// Returns the places of all values in the tests that are run, as JSON pointers.
fn places(suite: &Suite, file: &File) -> Vec<(String, Part)> {
    let mut places = Vec::new();
    find(&file.json, String::new(), Part::Neither, &mut places);
    let left_out = (suite.left_out)(&file.json);
    places.retain(|(place, _)| {
        let test = test_at(place).map(|index| &file.json["tests"][index]["description"]);
        left_out.iter().all(|(left_out, _)| test.is_none_or(|test| test != left_out))
    });
    places
}

fn find(json: &Value, place: String, part: Part, places: &mut Vec<(String, Part)>) {
    match json {
        Value::Object(fields) => {
            for (key, value) in fields {
                // The ids of topologies and the arguments of operators admit several values.
                if key == "topologyId" || key.starts_with("$$") {
                    continue;
                }
                let escaped = key.replace('~', "~0").replace('/', "~1");
                let part = match part {
                    Part::Neither if GIVEN.contains(&&**key) => Part::Given,
                    Part::Neither if EXPECTED.contains(&&**key) => Part::Expected,
                    part => part,
                };
                find(value, format!("{place}/{escaped}"), part, places);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find(item, format!("{place}/{index}"), part, places);
            }
        }
        _ => {}
    }
    places.push((place, part));
}

/// Returns the index of the test to which `place` belongs.
fn test_at(place: &str) -> Option<usize> {
    place.strip_prefix("/tests/")?.split('/').next()?.parse().ok()
}

/// Returns the file with another value at `place`. If the value belongs to a test, all other tests
/// are removed.
fn changed(file: &File, place: &str, other: Value) -> Option<Value> {
    let mut json = file.json.clone();
    *json.pointer_mut(place)? = other;
    if let Some(index) = test_at(place) {
        json["tests"] = json!([json["tests"][index].take()]);
    }
    Some(json)
}

/// Returns a different value, if `value` is an expected scalar.
fn other(value: &Value, part: Part) -> Option<Value> {
    match value {
        _ if part != Part::Expected => None,
        Value::Object(_) | Value::Array(_) => None,
        Value::Bool(own) => Some(json!(!own)),
        Value::Number(own) => match own.as_i64() {
            Some(own) => Some(json!(own.checked_add(1)?)),
            None => Some(json!(own.as_f64()? + 1.0)),
        },
        Value::String(own) => Some(json!(format!("{own}1"))),
        Value::Null => Some(json!(1)),
    }
}

/// Returns all changed values. An expected scalar is replaced by a different one, and every object
/// gets an additional key. Unless `part` is [`Part::Given`], objects also lose each of their keys,
/// and lists lose an item, repeat an item and change their order.
fn wrong(value: &Value, part: Part) -> Vec<Value> {
    let mut wrong = Vec::from_iter(other(value, part));
    match value {
        Value::Object(fields) => {
            let key = "surprise".to_owned();
            let more = fields.clone().into_iter().chain([(key, json!(1))]);
            wrong.push(Value::Object(more.collect()));
            for key in fields.keys().filter(|_| part != Part::Given) {
                let mut fewer = fields.clone();
                fewer.remove(key);
                wrong.push(fewer.into());
            }
        }
        Value::Array(items) if part != Part::Given && !items.is_empty() => {
            let (last, others) = (&items[items.len() - 1..], &items[..items.len() - 1]);
            wrong.push(others.into());
            wrong.push([items, last].concat().into());
            wrong.extend((items.len() > 1).then(|| [last, others].concat().into()));
        }
        _ => {}
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expected_value_is_changed_once_and_no_given_one() {
        let json = json!({
            "uri": "a", "responses": [{ "hosts": ["a"] }], "a/b": [{ "outcome": { "x": null } }],
            "events": [1, { "responses": true }], "valid": "no",
        });
        let mut places = Vec::new();
        find(&json, String::new(), Part::Neither, &mut places);
        let others = places.iter().filter_map(|(place, part)| {
            let other = other(json.pointer(place)?, *part)?;
            Some(format!("{place} {other}"))
        });
        let expected =
            ["/a~1b/0/outcome/x 1", "/events/0 2", "/events/1/responses false", "/valid \"no1\""];
        assert_eq!(others.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn objects_and_lists_are_changed_in_every_way() {
        let check = |value: Value, part: Part, expected: Value| {
            assert_eq!(json!(wrong(&value, part)), expected);
        };
        let (more, fewer) = (json!({ "a": 1, "surprise": 1 }), json!({}));
        check(json!({ "a": 1 }), Part::Given, json!([more]));
        check(json!({ "a": 1 }), Part::Expected, json!([more, fewer]));
        check(json!([1, 2, 3]), Part::Neither, json!([[1, 2], [1, 2, 3, 3], [3, 1, 2]]));
        check(json!([1]), Part::Expected, json!([[], [1, 1]]));
        check(json!([1, 2]), Part::Given, json!([]));
    }

    #[test]
    fn a_changed_file_has_only_the_test_with_the_change() {
        let json = json!({ "tests": [{ "uri": "a" }, { "uri": "b" }] });
        let file = File { name: "file".to_owned(), json };
        let expected = json!({ "tests": [{ "uri": "c" }] });
        assert_eq!(changed(&file, "/tests/1/uri", json!("c")), Some(expected));
    }
}
