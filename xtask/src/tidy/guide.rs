//! Checks the guide: every page is in the table of contents, and every listing is a doc test.

use std::fs;

use crate::Result;
use crate::cargo::{relative, root};

/// The pages without listings: the table of contents and the front page.
const WITHOUT_LISTINGS: &[&str] = &["README.md", "SUMMARY.md"];

/// The allowed languages of code blocks. `no_run` and `should_panic` listings are still compiled.
const LANGUAGES: &[&str] = &["rust", "rust,no_run", "rust,should_panic", "text", "toml", "sh"];

pub(super) fn check(violations: &mut Vec<String>) -> Result<()> {
    let folder = root().join("docs/guide/src");
    let contents = fs::read_to_string(folder.join("SUMMARY.md"))?;
    let tests = fs::read_to_string(root().join("examples/lib/guide.rs"))?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path)?;
        let place = relative(&path);
        super::check(&place, &text, violations);
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
