//! Checks that the tables of files in `ARCHITECTURE.md` name every file of their crates.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::cargo::{root, rust_files};

/// The crates with a table.
const CRATES: &[&str] = &["sdam", "sdam-pool"];

pub(super) fn check(violations: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    for name in CRATES {
        let folder = root().join(name).join("src");
        let files = rust_files(&folder)?;
        let present = files.iter().filter_map(|file| {
            let file = file.strip_prefix(&folder).ok()?;
            let is_test = |part: &str| part.starts_with("tests") || part.starts_with("models");
            let mut parts = file.iter().map(|part| part.to_string_lossy());
            (!parts.any(|part| is_test(&part))).then(|| file.to_string_lossy().into_owned())
        });
        let (present, named) = (present.collect(), named(&text, name));
        for (these, those, wrong) in
            [(&present, &named, "does not name"), (&named, &present, "names a file that is gone:")]
        {
            let wrong = |file| format!("ARCHITECTURE.md {wrong} {name}/src/{file}");
            violations.extend(BTreeSet::difference(these, those).map(wrong));
        }
    }
    Ok(())
}

/// Returns the files in the first column of a crate's table. The files in a row are in the same
/// folder as the first one.
fn named(text: &str, name: &str) -> BTreeSet<String> {
    let heading = format!("## Files of `{name}`\n");
    let (_, section) = text.split_once(&heading).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.split('|').nth(1));
    let mut named = BTreeSet::new();
    for cell in cells {
        let mut folder = None;
        for file in cell.split('`').map(Path::new) {
            if file.extension().is_some_and(|extension| extension == "rs") {
                let own = file.parent().unwrap_or(Path::new(""));
                let folder = *folder.get_or_insert(own);
                let file = if own == folder { file.to_owned() } else { folder.join(file) };
                named.insert(file.to_string_lossy().into_owned());
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn files_of_a_row_are_in_the_folder_of_the_first() {
        let text = "## Files of `a`\n\n| **`x.rs`** | y |\n| `z/b.rs`, `c.rs` | `no.rs` |\n\n## B\n| `d.rs` |";
        let files: Vec<_> = named(text, "a").into_iter().collect();
        assert_eq!(files, ["x.rs", "z/b.rs", "z/c.rs"]);
    }
}
