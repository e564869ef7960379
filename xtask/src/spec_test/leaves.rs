//! Official files with a wrong expectation, which no file may pass.

use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sdam_core::rng::Rng;
use sdam_spec::corpus::File;
use serde_json::{Value, json};

use super::runner::{self, Column, Job};
use super::{choose_suites, fetch};
use crate::Result;

/// The keys of what a file expects, in all formats.
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

/// The keys of what a file sets up or does.
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

/// The share of changes, in percent, that files may pass. A string that is refused has no warnings,
/// for example, and a test may become one that is left out.
const TOLERATED: usize = 3;

/// Changes expected values, one at a time, until `limit` has passed or all are changed.
///
/// # Errors
/// If too many changes make no difference.
pub(crate) fn run(limit: Duration) -> Result<()> {
    let begin = Instant::now();
    let corpus = fetch::corpus()?;
    let (mut changes, mut passed, mut tried) = (Vec::new(), Vec::new(), 0);
    for suite in choose_suites(&[])? {
        for file in corpus.files(suite.folder)? {
            let file = Arc::new(file);
            let mut places = Vec::new();
            find(&file.json, String::new(), false, &mut places);
            let left_out = (suite.left_out)(&file.json);
            places.retain(|place| {
                let test = test_at(place).map(|index| &file.json["tests"][index]["description"]);
                left_out.iter().all(|(left_out, _)| test.is_none_or(|test| test != left_out))
            });
            changes.extend(places.into_iter().map(|place| (suite, Arc::clone(&file), place)));
        }
    }
    let day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 86_400;
    Rng::new(day).shuffle(&mut changes);
    println!("{} values are expected; those of day {day} come first", changes.len());
    for batch in changes.chunks(BATCH).take_while(|_| begin.elapsed() < limit) {
        let files = batch.iter().filter_map(|(suite, file, place)| {
            let File { name, json } = changed(file, place)?;
            Some((*suite, vec![File { name: format!("{}/{name}", suite.name()), json }]))
        });
        let mut left: Vec<Job> = files.collect();
        tried += left.len();
        for column in [Column::Pure, Column::Sim] {
            let jobs = left.iter().filter_map(|job| column.select(job)).collect();
            let cells = runner::run(column, &Arc::new(jobs), false).into_iter();
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

/// Adds the places of all expected values in `json`, as JSON pointers.
fn find(json: &Value, place: String, is_expected: bool, places: &mut Vec<String>) {
    match json {
        Value::Object(fields) => {
            for (key, value) in fields {
                // The ids of topologies and the arguments of operators admit several values.
                let is_free = key == "topologyId" || key.starts_with("$$");
                if is_free || !is_expected && GIVEN.contains(&&**key) {
                    continue;
                }
                let escaped = key.replace('~', "~0").replace('/', "~1");
                let expected = is_expected || EXPECTED.contains(&&**key);
                find(value, format!("{place}/{escaped}"), expected, places);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find(item, format!("{place}/{index}"), is_expected, places);
            }
        }
        _ => places.extend(iter::once(place).filter(|_| is_expected)),
    }
}

/// Returns the index of the test to which `place` belongs.
fn test_at(place: &str) -> Option<usize> {
    place.strip_prefix("/tests/")?.split('/').next()?.parse().ok()
}

/// Returns the file with another value at `place`, and without other tests than that of the value.
fn changed(file: &File, place: &str) -> Option<File> {
    let mut json = file.json.clone();
    let value = json.pointer_mut(place)?;
    *value = match value {
        Value::Bool(own) => json!(!*own),
        Value::Number(own) => json!(own.as_i64()?.checked_add(1)?),
        Value::String(own) => json!(format!("{own}1")),
        _ => json!(1),
    };
    if let Some(index) = test_at(place) {
        json["tests"] = json!([json["tests"][index].take()]);
    }
    Some(File { name: format!("{}{place}", file.name), json })
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
        let file = File { name: "file".to_owned(), json };
        let mut places = Vec::new();
        find(&file.json, String::new(), false, &mut places);
        let changes = places.iter().map(|place| {
            let changed = changed(&file, place).unwrap();
            let value = changed.json.pointer(place).unwrap();
            assert_ne!(value, file.json.pointer(place).unwrap());
            format!("{} {value}", changed.name)
        });
        let expected = [
            "file/a~1b/0/outcome/x 1",
            "file/events/0 2",
            "file/events/1/responses false",
            "file/valid \"no1\"",
        ];
        assert_eq!(changes.collect::<Vec<_>>(), expected);
    }
}
