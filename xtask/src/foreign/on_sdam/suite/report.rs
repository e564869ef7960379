//! The tables that show the results.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::deployment::Deployment;
use super::notes::Notes;
use super::results::{Outcome, Results, TestResult, Total};
use crate::foreign::on_sdam::driver::VERSION;

/// The number of path segments by which tests are grouped.
const DEPTH: usize = 4;

/// The results of the published and the overlaid driver on one deployment.
pub(super) type Both = (Deployment, Results, Results);

/// The column headings for both drivers.
const COLUMNS: &str = "passed | failed | skipped | cases | passed | failed | skipped | cases |";

/// Returns the page about all deployments.
pub(super) fn page(all: &[Both], notes: &Notes) -> String {
    let mut page = format!(
        "# The tests of the official Rust driver\n\n\
         The tests of `mongodb` {VERSION}, run with the driver as published and with its `sdam` module replaced by this project.\n\
         `cargo xtask foreign rust-driver-on-sdam --tests --write` repeats them and writes this page.\n\
         Each test runs in a process of its own with a time limit; one that fails is run up to three times.\n\
         A test that says that it is skipped, and runs no case of an official file, counts as skipped.\n\
         Cases are those of the official files, of which one test runs many.\n\n\
         In all tables, the first four columns are the driver as published, the others the overlaid one.\n\n"
    );
    head(&mut page, "servers");
    for (deployment, published, overlaid) in all {
        row(&mut page, &deployment.to_string(), published.total(), overlaid.total());
    }
    differences(&mut page, all, notes);
    unstable(&mut page, all);
    left_out(&mut page, notes);
    for both in all {
        section(&mut page, both);
    }
    page
}

fn section(page: &mut String, (deployment, published, overlaid): &Both) {
    line(page, &format!("\n## {deployment}\n"));
    head(page, "module");
    let names = published.0.keys().chain(overlaid.0.keys());
    let groups: BTreeSet<_> = names.map(|name| module(name)).collect();
    for group in groups {
        let total = |results: &Results| results.total_of(|name| module(name) == group);
        row(page, &format!("`{group}`"), total(published), total(overlaid));
    }
}

fn head(page: &mut String, first: &str) {
    line(page, &format!("| {first} | {COLUMNS}"));
    let columns = COLUMNS.matches('|').count();
    line(page, &format!("| --- |{}", " --: |".repeat(columns)));
}

fn row(page: &mut String, first: &str, published: Total, overlaid: Total) {
    line(page, &format!("| {first} | {published} | {overlaid} |"));
}

/// Lists the tests that have different results, and those that fail with both drivers.
fn differences(page: &mut String, all: &[Both], notes: &Notes) {
    line(page, "\n## Tests with different results, or that fail in both\n");
    line(page, "| test | deployment | published | overlaid | reason |");
    line(page, "| --- | --- | --- | --- | --- |");
    for (deployment, published, overlaid) in all {
        if published.total().is_empty() || overlaid.total().is_empty() {
            continue;
        }
        let names = published.0.keys().chain(overlaid.0.keys());
        for name in names.collect::<BTreeSet<_>>() {
            let both = [published.0.get(name), overlaid.0.get(name)];
            if is_unremarkable(both) {
                continue;
            }
            let [published, overlaid] = both.map(show);
            let reason = notes.differs(name).unwrap_or_default();
            line(
                page,
                &format!("| `{name}` | {deployment} | {published} | {overlaid} | {reason} |"),
            );
        }
    }
}

/// Returns whether the test passed with both drivers and ran the same number of cases.
fn is_unremarkable(both: [Option<&TestResult>; 2]) -> bool {
    let of = |result: &TestResult| (result.outcome, result.cases);
    let [published, overlaid] = both.map(|result| result.map(of));
    published == overlaid && published.is_none_or(|(outcome, _)| outcome != Outcome::Failed)
}

fn show(result: Option<&TestResult>) -> String {
    match result {
        None => "not there".to_owned(),
        Some(result) if result.cases > 0 => {
            format!("{}, {} cases", result.outcome.as_str(), result.cases)
        }
        Some(result) => result.outcome.as_str().to_owned(),
    }
}

/// Lists the tests that passed only after they were repeated.
fn unstable(page: &mut String, all: &[Both]) {
    line(page, "\n## Tests that passed in a later run only\n");
    line(page, "| test | deployment | driver | runs |");
    line(page, "| --- | --- | --- | --: |");
    for (deployment, published, overlaid) in all {
        for (driver, results) in [("published", published), ("overlaid", overlaid)] {
            let passed = |result: &TestResult| result.outcome != Outcome::Failed;
            for (name, result) in results.0.iter().filter(|(_, it)| passed(it) && it.runs > 1) {
                let runs = result.runs;
                line(page, &format!("| `{name}` | {deployment} | {driver} | {runs} |"));
            }
        }
    }
}

fn left_out(page: &mut String, notes: &Notes) {
    line(page, "\n## Tests that are left out\n");
    line(page, "| names with | reason |");
    line(page, "| --- | --- |");
    for note in &notes.left_out {
        line(page, &format!("| `{}` | {} |", note.pattern, note.reason));
    }
}

/// Returns the path of a test's module, with a limited number of segments.
fn module(test: &str) -> String {
    let segments: Vec<_> = test.split("::").collect();
    let depth = DEPTH.min(segments.len() - 1);
    segments[..depth].join("::")
}

fn line(page: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{text}");
}

#[cfg(test)]
mod tests {
    use super::module;

    #[test]
    fn tests_are_grouped_by_their_module() {
        assert_eq!(module("sdam::test::a"), "sdam::test");
        assert_eq!(
            module("sdam::description::topology::server_selection::test::logic::a"),
            "sdam::description::topology::server_selection"
        );
    }
}
