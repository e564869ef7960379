//! `cargo xtask tidy`: checks those rules of the project that no compiler checks.

mod guide;

use std::fs;

use crate::Result;
use crate::cargo::{crates, relative, rust_files};
use crate::conformance;

/// The maximum number of lines in a file.
const LIMIT: usize = 600;

/// The beginning of an attribute that leaves a test to `cargo xtask test --deep`. It continues with
/// what takes long. The words are concatenated so that this file does not contain them.
const DEEP: &str = concat!("#[ig", "nore = \"deep: ");

pub(crate) fn run() -> Result<()> {
    let mut files = Vec::new();
    let mut count = 0;
    let mut violations = Vec::new();
    // The fuzz targets are a separate workspace.
    for folder in crates()?.iter().filter(|folder| !folder.ends_with("fuzz")) {
        let manifest = folder.join("Cargo.toml");
        count += 1;
        if !fs::read_to_string(&manifest)?.contains("[lints]\nworkspace = true") {
            let manifest = relative(&manifest);
            violations.push(format!("{manifest} does not take the lints of the workspace"));
        }
        files.extend(rust_files(folder)?);
    }
    for file in &files {
        let (name, text) = (relative(file), fs::read_to_string(file)?);
        check(&name, &text, &mut violations);
    }
    violations.extend(conformance::violations()?);
    guide::check(&mut violations)?;
    if violations.is_empty() {
        println!("tidy: {} files in {count} crates", files.len());
        return Ok(());
    }
    Err(violations.join("\n       ").into())
}

fn check(name: &str, text: &str, violations: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LIMIT {
        violations.push(format!("{name} has {lines} lines, more than {LIMIT}"));
    }
    for (index, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", index + 1);
        if line.ends_with([' ', '\t']) {
            violations.push(format!("{place} ends with white space"));
        }
        // The words are concatenated, as above.
        for word in [concat!("to", "do!("), concat!("unimpl", "emented!(")] {
            if line.contains(word) {
                violations.push(format!("{place} is unfinished: {word}"));
            }
        }
        let deep = line.trim_start().strip_prefix(DEEP).and_then(|rest| rest.strip_suffix("\"]"));
        if line.contains(concat!("#[ig", "nore")) && deep.is_none_or(str::is_empty) {
            violations.push(format!("{place} ignores a test without `deep:` and what takes long"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_violation_is_found() {
        let find = |text: &str| {
            let mut violations = Vec::new();
            check("a.rs", text, &mut violations);
            violations
        };
        assert_eq!(find("//! A file.\n"), [""; 0]);
        assert_eq!(find("//! A file. \n"), ["a.rs:1 ends with white space"]);
        assert_eq!(find(&format!("//! A file.\n{}()\n", "todo!")).len(), 1);
        assert_eq!(find(&format!("//! A file.\n{}", "\n".repeat(600))).len(), 1);
        assert_eq!(find(&format!("{DEEP}seeds\"]\n")), [""; 0]);
        for reason in ["]", " = \"flaky\"]", " = \"deep: \"]"] {
            assert_eq!(find(&format!("#[{}{reason}\n", "ignore")).len(), 1, "{reason}");
        }
    }
}
