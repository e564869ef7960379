//! `cargo xtask conformance`: maintains the catalogue of rules and their proofs.

mod citations;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fs, path::PathBuf};

use crate::{
    Result,
    cargo::{crates, files_below, relative, root, rust_files},
};

use self::citations::Citations;

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

/// The prefix of the lines that this program generates: the proofs, in parentheses.
const PROOF: &str = "  (";
/// The words with which a rule begins if no test has to cite it.
const WEAK: &[&str] = &["SHOULD. ", "MAY. ", "own. ", "observed. "];
/// The prefixes of lines that explain why a rule has no test.
const EXEMPTIONS: &[&str] = &["  By construction: ", "  Caller's duty: ", "  Not offered: "];

/// A page of the catalogue, without the lines that this program generates.
#[derive(Debug)]
struct Page {
    lines: Vec<String>,
}

/// A rule from the specifications or this project.
#[derive(Debug)]
struct Rule<'p> {
    /// The id, such as `L-43`.
    id: &'p str,
    /// True if a test must cite the rule.
    needs_proof: bool,
}

impl Page {
    /// Parses a page. Lines that this program generated are removed.
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with(PROOF));
        Self { lines: lines.map(str::to_owned).collect() }
    }

    fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
        self.lines.iter().enumerate().filter_map(|(index, line)| {
            let (id, text) = defined(line)?;
            let is_must = !WEAK.iter().any(|word| text.starts_with(word));
            Some(Rule { id, needs_proof: is_must && !self.is_excuse(index + 1) })
        })
    }

    fn is_excuse(&self, index: usize) -> bool {
        let line = self.lines.get(index);
        line.is_some_and(|line| EXEMPTIONS.iter().any(|word| line.starts_with(word)))
    }

    /// Returns the text of the page, with the current proofs.
    fn render(&self, citations: &Citations) -> String {
        let mut text = String::new();
        let mut rule = None;
        for (index, line) in self.lines.iter().enumerate() {
            text.extend([line, "\n"]);
            rule = defined(line).map(|(id, _)| id).or(rule);
            // If the next line is an explanation, the proof follows that line.
            if !self.is_excuse(index + 1)
                && let Some(proof) = rule.take().and_then(|rule| citations.proof(rule))
            {
                text.extend([PROOF, &proof, ")\n"]);
            }
        }
        text
    }
}

/// Returns the id and the text of the rule that a line defines.
fn defined(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("- **")?.split_once("** ")
}
