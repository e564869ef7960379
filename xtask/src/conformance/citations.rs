//! The places in the code that cite a rule.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Captures, Regex};

use crate::Result;

/// A pattern for the id of a rule (`L-43` or `F-68b`), or for a range of ids (`L-10` to `L-12`).
const RULES: &str = r"(?:^|[^\w-])([A-X])-(\d+)(b?)\b(?: to ([A-X])-(\d+)(b?)\b)?";
/// A pattern for the beginning of a function definition.
const FUNCTION: &str = r"^\s*(?:pub(?:\(\w+\))? )?(?:const )?(?:async )?fn (\w+)";
/// Parts of the paths of other files that contain only tests: conformance suites and loom models.
const TESTS: &[&str] = &["/conformance/", "/models.rs", "/models/"];
/// The paths of the code that checks every simulated run.
const ORACLES: &[&str] = &["proof/chaos/src/", "sdam-sim/src/oracle"];
/// The file with the table of rules that the official files prove.
const SUITES: &str = "proof/spec/src/suite.rs";

/// All citations of rules.
#[derive(Debug)]
pub(super) struct Citations {
    rules: Regex,
    function: Regex,
    /// The functions that prove each rule, keyed by rule and file. If the set of functions is
    /// empty, the file as a whole proves the rule.
    proofs: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// One place that cites the rule, for each rule cited in the code.
    named: BTreeMap<String, String>,
}

impl Citations {
    /// Creates an empty collection of citations.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            rules: Regex::new(RULES)?,
            function: Regex::new(FUNCTION)?,
            proofs: BTreeMap::new(),
            named: BTreeMap::new(),
        })
    }

    /// Adds the citations in one file.
    pub(super) fn read(&mut self, path: &str, text: &str) {
        let lines: Vec<_> = text.lines().collect();
        let tests_begin = tests_begin(path, &lines);
        for (index, line) in lines.iter().enumerate() {
            if index >= tests_begin
                && let Some(function) = self.name(line)
            {
                for rule in self.rules_in_name(function) {
                    let place = format!("{path}:{}", index + 1);
                    self.named.entry(rule.clone()).or_insert(place);
                    self.prove(rule, format!("`{path}`"), Some(function));
                }
            }
            let Some(comment) = comment(line) else {
                continue;
            };
            for rule in self.rules(comment) {
                let place = format!("{path}:{}", index + 1);
                self.named.entry(rule.clone()).or_insert(place);
                if path == SUITES {
                    if let Some(folder) = folder(comment) {
                        self.prove(rule, format!("official files `{folder}`"), None);
                    }
                } else if is_oracle(path) {
                    self.prove(rule, format!("oracle `{path}`"), None);
                } else if index >= tests_begin {
                    let function = self.function(&lines, index);
                    self.prove(rule, format!("`{path}`"), function);
                }
            }
        }
    }

    fn prove(&mut self, rule: String, place: String, function: Option<&str>) {
        let places = self.proofs.entry(rule).or_default();
        let functions = places.entry(place).or_default();
        functions.extend(function.map(str::to_owned));
    }

    /// Returns whether any code or file proves the rule.
    pub(super) fn proves(&self, rule: &str) -> bool {
        self.proofs.contains_key(rule)
    }

    /// Describes the proofs of the rule.
    pub(super) fn proof(&self, rule: &str) -> Option<String> {
        let places = self.proofs.get(rule)?.iter().map(|(place, functions)| {
            let mut functions = functions.iter();
            let Some(first) = functions.next() else { return place.clone() };
            let first = format!("{}::{first}`", place.trim_end_matches('`'));
            functions.fold(first, |text, name| format!("{text}, `{name}`"))
        });
        Some(places.collect::<Vec<_>>().join("; "))
    }

    /// Returns every rule cited in the code, with one place for each.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named.iter().map(|(rule, place)| (&**rule, &**place))
    }

    /// Returns the function that a line belongs to. The line may be in the function's doc comment
    /// or in its body.
    fn function<'t>(&self, lines: &[&'t str], index: usize) -> Option<&'t str> {
        let is_about_next = |line: &&&str| {
            let line = line.trim_start();
            line.starts_with("//") || line.starts_with("#[")
        };
        let head = lines.iter().skip(index).find(|line| !is_about_next(line));
        let before = || {
            let indented = lines.get(index).is_some_and(|line| line.starts_with(' '));
            let earlier = lines.iter().take(index).rev();
            earlier.filter(|_| indented).find_map(|line| self.name(line))
        };
        head.and_then(|line| self.name(line)).or_else(before)
    }

    /// Returns the name of the function whose definition begins on a line.
    fn name<'t>(&self, line: &'t str) -> Option<&'t str> {
        Some(self.function.captures(line)?.get(1)?.as_str())
    }

    /// Returns the rules that a string cites.
    fn rules(&self, text: &str) -> Vec<String> {
        let found = self.rules.captures_iter(text).flat_map(|found: Captures<'_>| {
            let text = |group| found.get(group).map_or("", |group| group.as_str());
            let number = |group| text(group).parse::<u32>().unwrap_or_default();
            let ids = [1, 4].map(|group| {
                let id = format!("{}-{}{}", text(group), text(group + 1), text(group + 2));
                (id != "-").then_some(id)
            });
            let [first, last] = ids;
            let is_range = text(1) == text(4) && text(3).is_empty();
            let between = if is_range { number(2) + 1..number(5) } else { 0..0 };
            let between = between.map(|number| format!("{}-{number}", text(1)));
            let between: Vec<_> = between.collect();
            first.into_iter().chain(between).chain(last)
        });
        found.collect()
    }

    /// Returns the rules that a function's name cites, such as `l_43_operations_are_counted`.
    fn rules_in_name(&self, name: &str) -> Vec<String> {
        let words: Vec<_> = name.split('_').collect();
        let pairs = words.windows(2);
        let pairs = pairs.map(|pair| format!("{}-{}", pair[0].to_uppercase(), pair[1]));
        pairs.filter(|pair| self.rules(pair) == [pair.as_str()]).collect()
    }
}

/// Returns whether a file contains oracles that check simulated runs. Files that test oracles do
/// not count.
fn is_oracle(path: &str) -> bool {
    let judges = ORACLES.iter().any(|oracle| path.starts_with(oracle));
    judges && !path.ends_with("/tests.rs")
}

/// Returns the index of the first line in the file that belongs to a test.
fn tests_begin(path: &str, lines: &[&str]) -> usize {
    let is_suite = !path.starts_with("xtask/") && TESTS.iter().any(|part| path.contains(part));
    if is_suite || path.contains("/tests/") || path.ends_with("/tests.rs") {
        return 0;
    }
    let mut pairs = lines.windows(2);
    pairs
        .position(|pair| matches!(pair, [attribute, module] if attribute.contains("cfg(test)") && module.ends_with('{')))
        .unwrap_or(lines.len())
}

/// Returns the comment or the string in a line. Rules can be cited nowhere else.
fn comment(line: &str) -> Option<&str> {
    line.find("//").or_else(|| line.find('"')).and_then(|at| line.get(at..))
}

/// Returns the folder of official files in a table row.
fn folder(comment: &str) -> Option<&str> {
    comment.strip_prefix("//! | `")?.split('`').next()
}
