//! The list of state that threads share, `docs/shared-state.md`: compares it with the code, the loom
//! models and the deliberate bugs.

mod items;
mod models;

use std::collections::BTreeSet;
use std::fs;

use crate::Result;
use crate::cargo::{crates, root};

/// The list, relative to the workspace.
pub(crate) const PAGE: &str = "docs/shared-state.md";

/// The page, parsed. A row of a table names a file below the folder of its section, an item, and
/// the models that cover the item or the reason why none is needed. A line of the section "Models"
/// names a model.
struct Page {
    rows: Vec<Row>,
    models: BTreeSet<String>,
}

struct Row {
    /// The file and the item, as in `sdam/src/lib.rs Type.field`.
    item: String,
    cover: String,
}

/// Returns the names of all listed models, such as `sdam::waiters::some_test`.
pub(crate) fn listed_models() -> Result<BTreeSet<String>> {
    Ok(Page::parse(&fs::read_to_string(root().join(PAGE))?).models)
}

/// Returns the differences between the page and the code.
pub(crate) fn violations() -> Result<Vec<String>> {
    let page = Page::parse(&fs::read_to_string(root().join(PAGE))?);
    let finder = items::Finder::new()?;
    let (mut items, mut models) = (BTreeSet::new(), BTreeSet::new());
    for folder in crates()? {
        if !fs::read_to_string(folder.join("Cargo.toml"))?.contains("publish = false") {
            items.extend(finder.of_crate(&folder)?);
            models.extend(models::of_crate(&folder)?);
        }
    }
    let bugs = fs::read_to_string(root().join("xtask/src/mutants/bugs.txt"))?;
    Ok(page.compare(&items, &models, &bugs))
}

impl Page {
    fn parse(text: &str) -> Self {
        let (mut rows, mut models, mut section) = (Vec::new(), BTreeSet::new(), "");
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                section = heading.trim_matches('`');
            } else if let Some(model) = line.strip_prefix("- `").filter(|_| section == "Models") {
                models.insert(model.trim_end_matches('`').to_owned());
            } else if let [_, file, item, cover, _] = *line.split('|').collect::<Vec<_>>()
                && file.contains('`')
            {
                let [file, item, cover] = [file, item, cover].map(str::trim);
                let [file, item] = [file, item].map(|cell| cell.trim_matches('`'));
                let item = format!("{section}/src/{file} {item}");
                rows.push(Row { item, cover: cover.to_owned() });
            }
        }
        Self { rows, models }
    }

    /// Returns the differences between this page and the `items` and `models` in the code. A model
    /// has to detect one of the `bugs` that weakens each ordering.
    fn compare(
        &self,
        items: &BTreeSet<String>,
        models: &BTreeSet<String>,
        bugs: &str,
    ) -> Vec<String> {
        let mut violations = Vec::new();
        let mut differ = |these: &BTreeSet<String>, those: &BTreeSet<String>, wrong: &str| {
            violations.extend(these.difference(those).map(|one| format!("{PAGE} {wrong} {one}")));
        };
        let rows: BTreeSet<_> = self.rows.iter().map(|row| row.item.clone()).collect();
        differ(items, &rows, "does not list");
        differ(&rows, items, "lists an item that is gone:");
        differ(models, &self.models, "does not list the model");
        differ(&self.models, models, "lists a model that is gone:");
        if rows.len() < self.rows.len() {
            violations.push(format!("{PAGE} lists an item twice"));
        }
        // A bug has its name in the first line, its file and what detects it in the second.
        let is_bug = |file: &str, name: &str| {
            let (bug, place) = (format!("{name}: "), format!("  in {file} by models"));
            let mut lines = bugs.lines().zip(bugs.lines().skip(1));
            lines.any(|(first, second)| first.starts_with(&bug) && second.starts_with(&place))
        };
        let exists = |name: &&str| models.iter().any(|model| model.starts_with(name));
        for Row { item, cover } in &self.rows {
            if cover.starts_with("none: ") {
                continue;
            }
            let quoted: Vec<_> = cover.split('`').skip(1).step_by(2).collect();
            let named = || quoted.iter().copied().filter(|name| name.contains("::"));
            if named().next().is_none() {
                violations.push(format!("{PAGE} names neither a model nor a reason for {item}"));
            }
            for name in named().filter(|name| !exists(name)) {
                violations.push(format!("{PAGE} names the model {name} for {item}: there is none"));
            }
            let file = item.split(' ').next().unwrap_or_default();
            if item.contains(": ") && !quoted.iter().any(|name| is_bug(file, name)) {
                violations.push(format!("{PAGE} names no deliberate bug for {item}"));
            }
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Shared state

## `sdam`

| file | item | models |
| --- | --- | --- |
| `a.rs` | `A.lock` | `sdam::a::` |
| `a.rs` | `B` | none: one thread has it. |
| `a.rs` | `set: Release` | `sdam::a::`, `weak` |

## Models

- `sdam::a::one`
";

    #[test]
    fn every_difference_between_the_page_and_the_code_is_found() {
        let check = |text: &str, items: &[&str], models: &[&str], bugs: &str| {
            let set = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect();
            Page::parse(text).compare(&set(items), &set(models), bugs)
        };
        let (model, bugs) = ("sdam::a::one", "weak: less\n  in sdam/src/a.rs by models a::\n");
        let [lock, other, set] =
            ["A.lock", "B", "set: Release"].map(|it| format!("sdam/src/a.rs {it}"));
        let all: &[&str] = &[&lock, &other, &set];
        assert_eq!(check(TEXT, all, &[model], bugs), [""; 0]);
        let found = check(TEXT, &[all, &["sdam/src/b.rs C"]].concat(), &[model], bugs);
        assert_eq!(found, ["docs/shared-state.md does not list sdam/src/b.rs C"]);
        let found = check(TEXT, &[&lock, &set], &[model], bugs);
        assert_eq!(found, ["docs/shared-state.md lists an item that is gone: sdam/src/a.rs B"]);
        let found = check(TEXT, all, &["sdam::b::one"], bugs);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[2].contains("sdam::a:: for sdam/src/a.rs A.lock"), "{found:?}");
        let found = check(TEXT, all, &[model], "weak: of the simulation\n  in sdam/src/a.rs\n");
        assert_eq!(found, [format!("docs/shared-state.md names no deliberate bug for {set}")]);
        let found = check(&TEXT.replace("none: one", "one"), all, &[model], bugs);
        assert!(found[0].contains("neither a model nor a reason"), "{found:?}");
        let twice = TEXT.replace("\n## Models", "| `a.rs` | `B` | none: twice. |\n\n## Models");
        assert_eq!(check(&twice, all, &[model], bugs).len(), 1);
    }
}
