//! `cargo xtask conformance`: maintains the catalogue of rules and their proofs.

mod catalogue;
mod citations;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fs, path::PathBuf};

use crate::{
    Result,
    cargo::{crates, files_below, relative, root, rust_files},
};

use self::{catalogue::Page, citations::Citations};

/// The folder with the catalogue's pages.
const PAGES: &str = "docs/conformance";

pub(crate) fn run() -> Result<()> {
    let catalogue = Catalogue::read()?;
    for (path, page, before) in &catalogue.pages {
        let after = page.render(&catalogue.citations);
        if after != *before {
            fs::write(path, after)?;
            eprintln!("wrote {}", relative(path));
        }
    }
    let catalogue = Catalogue::read()?;
    let violations = catalogue.violations();
    if !violations.is_empty() {
        return Err(violations.join("\n       ").into());
    }
    println!("conformance: {}", catalogue.summary());
    Ok(())
}

/// Returns the errors in the catalogue, one line each.
pub(crate) fn violations() -> Result<Vec<String>> {
    Ok(Catalogue::read()?.violations())
}

/// The pages, and the places in the code that cite rules.
struct Catalogue {
    pages: Vec<(PathBuf, Page, String)>,
    citations: Citations,
}

impl Catalogue {
    fn read() -> Result<Self> {
        let mut paths = files_below(&root().join(PAGES))?;
        paths.retain(|path| {
            path.extension().is_some_and(|extension| extension == "md")
                && path.file_name().is_some_and(|name| name != "README.md")
        });
        let mut pages = Vec::new();
        for path in paths {
            let text = fs::read_to_string(&path)?;
            pages.push((path, Page::parse(&text), text));
        }
        let mut citations = Citations::new()?;
        for path in sources()? {
            citations.read(&relative(&path), &fs::read_to_string(&path)?);
        }
        Ok(Self { pages, citations })
    }

    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let mut defined = BTreeMap::new();
        for (path, page, text) in &self.pages {
            let path = relative(path);
            for rule in page.rules() {
                if let Some(other) = defined.insert(rule.id, path.clone()) {
                    violations.push(format!("{path} defines {}, and so does {other}", rule.id));
                }
                if rule.needs_proof && !self.citations.proves(rule.id) {
                    violations.push(format!("{path}: no test names {}, which is a MUST", rule.id));
                }
            }
            if page.render(&self.citations) != *text {
                violations.push(format!("{path} is out of date: run `cargo xtask conformance`"));
            }
        }
        for (rule, place) in self.citations.named() {
            if !defined.contains_key(rule) {
                violations.push(format!("{place} names {rule}, which {PAGES} does not define"));
            }
        }
        violations
    }

    fn summary(&self) -> String {
        let rules: Vec<_> = self.pages.iter().flat_map(|(_, page, _)| page.rules()).collect();
        let proven = rules.iter().filter(|rule| self.citations.proves(rule.id)).count();
        format!("{} rules, {proven} of them named by tests", rules.len())
    }
}

/// Lists the Rust files in which rules can be cited, which include the fuzz targets.
fn sources() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    // This program is left out, because its tests contain example rules.
    for folder in crates()?.iter().filter(|folder| !folder.ends_with("xtask")) {
        files.extend(rust_files(folder)?);
    }
    files.retain(|path| !path.components().any(|part| part.as_os_str() == "target"));
    files.sort();
    Ok(files)
}
