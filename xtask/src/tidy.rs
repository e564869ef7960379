//! `cargo xtask tidy`: checks those rules of the project that no compiler checks.

use std::fs;

use crate::Result;
use crate::cargo::{crates, relative, root, rust_files};
use crate::conformance;

/// The maximum number of lines in a file.
const LIMIT: usize = 600;

/// The beginning of an attribute that leaves a test to `cargo xtask test --deep`. The attribute
/// continues with the reason why the test takes long. The parts are concatenated, so that this file
/// does not contain the attribute.
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
    check_guide(&mut violations)?;
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
        // The parts of each word are concatenated, so that this file does not contain the word.
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

/// The pages without listings: the table of contents and the front page.
const WITHOUT_LISTINGS: &[&str] = &["README.md", "SUMMARY.md"];

/// The allowed languages of code blocks. `no_run` and `should_panic` listings are still compiled.
const LANGUAGES: &[&str] = &["rust", "rust,no_run", "rust,should_panic", "text", "toml", "sh"];

/// Checks the guide: every page is in the table of contents, and every listing is a doc test.
fn check_guide(violations: &mut Vec<String>) -> Result<()> {
    let folder = root().join("docs/guide/src");
    let contents = fs::read_to_string(folder.join("SUMMARY.md"))?;
    let tests = fs::read_to_string(root().join("examples/lib/guide.rs"))?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path)?;
        let place = relative(&path);
        check(&place, &text, violations);
        check_fences(&place, &text, violations);
        if name != "SUMMARY.md" && !contents.contains(&format!("({name})")) {
            violations.push(format!("{place} is not in SUMMARY.md"));
        }
        let is_tested = tests.contains(&format!("docs/guide/src/{name}\""));
        if !is_tested && !WITHOUT_LISTINGS.contains(&&*name) {
            violations.push(format!("{place} is not in examples/lib/guide.rs"));
        }
    }
    Ok(())
}

fn check_fences(place: &str, text: &str, violations: &mut Vec<String>) {
    let fences = text.lines().enumerate().filter_map(|(index, line)| {
        let language = line.trim_start().strip_prefix("```")?;
        Some((index + 1, language))
    });
    // Every second fence ends a listing.
    for (line, language) in fences.step_by(2) {
        if !LANGUAGES.contains(&language) {
            violations.push(format!("{place}:{line} is a listing in `{language}`"));
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

    #[test]
    fn a_listing_that_is_not_compiled_is_found() {
        let find = |text: &str| {
            let mut violations = Vec::new();
            check_fences("a.md", text, &mut violations);
            violations
        };
        assert_eq!(find("```rust\n```\n\n```text\n```\n"), [""; 0]);
        let skipped = concat!("```rust\n```\n```rust,ig", "nore\n```\n");
        assert_eq!(find(skipped).len(), 1);
        assert_eq!(find("```\n```\n"), ["a.md:1 is a listing in ``"]);
    }
}
