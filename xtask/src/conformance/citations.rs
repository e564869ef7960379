//! The places in the code that cite a rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// The sections of the catalogue.
const SECTIONS: std::ops::RangeInclusive<char> = 'A'..='X';
/// Other files that contain only tests: suites for other crates, and models of threads.
const TESTS: &[&str] = &["/conformance/", "/models.rs", "/models/"];
/// The code that checks every simulated run.
const ORACLES: &[&str] = &["proof/chaos/src/", "sdam-sim/src/oracle"];
/// The table of the rules proved by the official files.
const SUITES: &str = "proof/spec/src/suite.rs";

/// All citations of rules.
#[derive(Debug, Default)]
pub(super) struct Citations {
    /// For each rule and file, the functions that prove the rule; empty for the file as a whole.
    proofs: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// One place in the code for each cited rule.
    named: BTreeMap<String, String>,
}

impl Citations {
    /// Adds the citations of one file.
    pub(super) fn read(&mut self, path: &str, text: &str) {
        let lines: Vec<_> = text.lines().collect();
        let tests_begin = tests_begin(path, &lines);
        for (index, line) in lines.iter().enumerate() {
            if index >= tests_begin
                && let Some(function) = name(line)
            {
                for rule in rules_in_name(function) {
                    let place = format!("{path}:{}", index + 1);
                    self.named.entry(rule.clone()).or_insert(place);
                    self.prove(rule, format!("`{path}`"), Some(function));
                }
            }
            let Some(comment) = comment(line) else {
                continue;
            };
            for rule in rules(comment) {
                let place = format!("{path}:{}", index + 1);
                self.named.entry(rule.clone()).or_insert(place);
                if path == SUITES {
                    if let Some(folder) = folder(comment) {
                        self.prove(rule, format!("official files `{folder}`"), None);
                    }
                } else if is_oracle(path) {
                    self.prove(rule, format!("oracle `{path}`"), None);
                } else if index >= tests_begin {
                    self.prove(rule, format!("`{path}`"), function(&lines, index));
                }
            }
        }
    }

    fn prove(&mut self, rule: String, place: String, function: Option<&str>) {
        let places = self.proofs.entry(rule).or_default();
        let functions = places.entry(place).or_default();
        functions.extend(function.map(str::to_owned));
    }

    /// Returns whether anything proves the rule.
    pub(super) fn proves(&self, rule: &str) -> bool {
        self.proofs.contains_key(rule)
    }

    /// Describes the proofs of the rule.
    pub(super) fn proof(&self, rule: &str) -> Option<String> {
        let mut text = String::new();
        for (place, functions) in self.proofs.get(rule)? {
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{place}");
            let mut before = ": ";
            for function in functions {
                let _ = write!(text, "{before}`{function}`");
                before = ", ";
            }
        }
        text.push('.');
        Some(text)
    }

    /// Returns every rule cited in the code, with one place for each.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named.iter().map(|(rule, place)| (&**rule, &**place))
    }
}

/// Returns whether a file judges simulated runs. Its own tests count as ordinary tests.
fn is_oracle(path: &str) -> bool {
    let judges = ORACLES.iter().any(|oracle| path.starts_with(oracle));
    judges && !path.ends_with("/tests.rs")
}

/// Finds the first line of the file that belongs to a test.
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

/// Returns the part of a line that is a comment or a string, where alone a rule can be cited.
fn comment(line: &str) -> Option<&str> {
    line.find("//").or_else(|| line.find('"')).and_then(|at| line.get(at..))
}

/// Returns the folder of official files in a table row.
fn folder(comment: &str) -> Option<&str> {
    comment.strip_prefix("//! | `")?.split('`').next()
}

/// Returns the function to which a line belongs, as part of its doc comment or its body.
fn function<'t>(lines: &[&'t str], index: usize) -> Option<&'t str> {
    let is_about_next = |line: &&&str| {
        let line = line.trim_start();
        line.starts_with("//") || line.starts_with("#[")
    };
    let head = lines.iter().skip(index).find(|line| !is_about_next(line));
    let before = || {
        let indented = lines.get(index).is_some_and(|line| line.starts_with(' '));
        let earlier = lines.iter().take(index).rev();
        earlier.filter(|_| indented).find_map(|line| name(line))
    };
    head.and_then(|line| name(line)).or_else(before)
}

/// Returns the name of the function whose definition begins on a line.
fn name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in ["pub ", "pub(crate) ", "pub(super) ", "const ", "async "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    rest.get(..end)
}

/// Returns the rules in a text: `L-43`, and all from `L-10` to `L-12`.
fn rules(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = text;
    let mut boundary = true;
    let mut range = false;
    while let Some(first) = rest.chars().next() {
        let Some((section, number, suffix, length)) = rule(rest).filter(|_| boundary) else {
            let after = rest.get(first.len_utf8()..).unwrap_or_default();
            boundary = !first.is_alphanumeric() && first != '-' && first != '_';
            rest = after;
            continue;
        };
        if range && let Some(from) = found.last().and_then(|last| number_of(last, section)) {
            found.extend((from + 1..number).map(|number| format!("{section}-{number}")));
        }
        found.push(format!("{section}-{number}{suffix}"));
        rest = rest.get(length..).unwrap_or_default();
        range = rest.starts_with(" to ");
        boundary = false;
    }
    found
}

/// Returns the rules in the name of a function: `l_43_operations_are_counted`.
fn rules_in_name(name: &str) -> Vec<String> {
    let words: Vec<_> = name.split('_').collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let [section, number] = pair else { continue };
        let text = format!("{}-{number}", section.to_uppercase());
        if section.len() == 1 && rule(&text).is_some_and(|(.., length)| length == text.len()) {
            found.push(text);
        }
    }
    found
}

/// Parses a rule at the beginning of a text: section, number, suffix, length.
fn rule(text: &str) -> Option<(char, u32, &str, usize)> {
    let section = text.chars().next().filter(|c| SECTIONS.contains(c))?;
    let digits = text.get(1..)?.strip_prefix('-')?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits.get(..end)?.parse().ok()?;
    let tail = digits.get(end..)?;
    let suffix = if tail.starts_with('b') { "b" } else { "" };
    let after = tail.get(suffix.len()..)?;
    let ends = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    ends.then_some((section, number, suffix, 2 + end + suffix.len()))
}

/// Parses the number of a rule of this section.
fn number_of(rule: &str, section: char) -> Option<u32> {
    rule.strip_prefix(section)?.strip_prefix('-')?.parse().ok()
}
