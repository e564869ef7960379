//! Finds the loom models in the code of a crate.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::cargo::rust_files;

/// Returns the models of the crate in `folder`, such as `sdam::waiters::some_test`. They are the
/// tests in its module `models`.
pub(super) fn of_crate(folder: &Path) -> Result<Vec<String>> {
    let source = folder.join("src");
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut models = Vec::new();
    for file in rust_files(&source)? {
        let path = file.strip_prefix(&source)?.with_extension("");
        let mut parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        if parts.first().is_some_and(|first| first == "models") {
            parts[0].clone_from(&name);
            let path = parts.join("::");
            let text = fs::read_to_string(&file)?;
            models.extend(tests(&text).map(|test| format!("{path}::{test}")));
        }
    }
    Ok(models)
}

/// Returns the names of the tests in a file.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[test]").skip(1).filter_map(|rest| {
        let function = rest.lines().find_map(|line| line.trim().strip_prefix("fn "))?;
        function.split('(').next()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn tests_are_found_whatever_other_attributes_they_have() {
        let text = "fn a() {}\n#[test]\nfn b() {}\n#[cfg(x)]\n#[test]\n#[cfg(y)]\nfn c() {}\n";
        assert_eq!(super::tests(text).collect::<Vec<_>>(), ["b", "c"]);
    }
}
