//! Edits of the driver's files. Each edit replaces a text that must occur exactly once in its file.

use super::tree::Tree;
use crate::Result;

/// The marker of the line that names the file to which the following changes belong.
const FILE: &str = "### ";
/// The lines that delimit an edit: before the old text, before the new text, and after the new
/// text.
const OLD: &str = "<<<<";
const NEW: &str = "====";
const END: &str = ">>>>";
/// A line in the old text that matches any number of lines.
const ANY: &str = "...";

/// One change to a file: the old text is replaced with the new text. The parts of the old text may
/// have any text between them, which is replaced as well.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    path: String,
    old: Vec<String>,
    new: String,
}

/// All changes in one file of edits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edits(Vec<Change>);

/// The numbers of lines that edits remove and add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Edited {
    pub(super) removed: usize,
    pub(super) added: usize,
}

impl Edits {
    /// Parses the contents of the edits file `name`. Lines outside edits are comments.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        let mut changes = Vec::new();
        let mut path = None;
        let mut lines = text.lines().zip(1..);
        while let Some((line, number)) = lines.next() {
            let wrong = |number: u32, what: &str| format!("{name}:{number}: {what}");
            match line {
                OLD => {}
                NEW | END => return Err(wrong(number, "this mark has no `<<<<`").into()),
                _ => {
                    path = line.strip_prefix(FILE).map(|file| file.trim().to_owned()).or(path);
                    continue;
                }
            }
            let mut until = |end: &str| {
                let mut part = Vec::new();
                for (line, number) in lines.by_ref() {
                    match line {
                        _ if line == end => return Ok((part, number)),
                        OLD | NEW | END => {
                            return Err(wrong(number, "this mark does not belong here"));
                        }
                        _ => part.push(line),
                    }
                }
                Err(format!("{name}: the last block has no `>>>>`"))
            };
            let ((old, _), (new, number)) = (until(NEW)?, until(END)?);
            let old: Vec<_> = old.split(|line| *line == ANY).map(|part| part.join("\n")).collect();
            if old.iter().any(String::is_empty) {
                return Err(wrong(number, "a part of the old text is empty").into());
            }
            let path = path.clone().ok_or_else(|| wrong(number, "no `### FILE` is above"))?;
            changes.push(Change { path, old, new: new.join("\n") });
        }
        Ok(Self(changes))
    }

    /// Applies all changes in order.
    ///
    /// # Errors
    /// If a file is missing, or does not contain the old text exactly once. The error message names
    /// the file and the old text.
    pub(super) fn apply(&self, tree: &mut Tree) -> Result<Edited> {
        let mut edited = Edited::default();
        for Change { path, old, new } in &self.0 {
            let text = tree
                .text(path)?
                .ok_or_else(|| format!("the driver has no file {path}, which is to be edited"))?;
            let (start, mut end) =
                place(text, old).map_err(|reason| format!("{path}: {reason}"))?;
            let (before, after) = (&text[..start], &text[end..]);
            let is_line = before.is_empty() || before.ends_with('\n');
            if new.is_empty() && is_line && after.starts_with('\n') {
                // If complete lines are removed, the line break after them must be removed, too.
                end += 1;
            }
            edited.removed += text[start..end].lines().count();
            edited.added += new.lines().count();
            let text = [before, new, &text[end..]].concat();
            tree.insert(path, text);
        }
        Ok(edited)
    }
}

/// Returns the start and the end of the old text in `text`.
fn place(text: &str, old: &[String]) -> Result<(usize, usize), String> {
    let (first, rest) = old.split_first().ok_or("the old text is empty")?;
    let mut starts = text.match_indices(first);
    let (start, _) = starts.next().ok_or_else(|| {
        format!("the driver does not hold this text, which is to be edited:\n{first}")
    })?;
    if starts.next().is_some() {
        return Err(format!(
            "the driver holds this text more than once, so it cannot be edited:\n{first}"
        ));
    }
    let mut end = start + first.len();
    for part in rest {
        let at = text[end..].find(part).ok_or_else(|| {
            format!("the first text below is not followed by the second:\n{first}\n...\n{part}")
        })?;
        end += at + part.len();
    }
    Ok((start, end))
}

#[cfg(test)]
mod tests {
    use super::Edits;
    use crate::foreign::on_sdam::tree::Tree;

    const SOURCE: &str =
        "use a;\n\nfn f() {\n    one();\n    two();\n    three();\n}\n\nfn g() {\n    two();\n}\n";

    fn error(edits: &str) -> String {
        let mut tree = Tree::default();
        tree.insert("src/a.rs", SOURCE);
        let applied = Edits::parse("edits.txt", edits).and_then(|edits| edits.apply(&mut tree));
        applied.unwrap_err().to_string()
    }

    #[test]
    fn old_text_that_is_missing_or_ambiguous_is_an_error_with_file_and_text() {
        let check = |old: &str, expected: &str| {
            let error = error(&format!("### src/a.rs\n<<<<\n{old}\n====\n>>>>\n"));
            assert!(error.starts_with("src/a.rs: "), "{error}");
            assert!(error.contains(expected), "{error}");
            assert!(error.contains(old.lines().next().unwrap()), "{error}");
        };
        check("use z;", "does not hold this text");
        check("two();", "more than once");
        check("fn g() {\n...\n    one();", "...\n    one();");
    }

    #[test]
    fn a_file_that_is_missing_is_an_error_with_its_name() {
        let edits = "### src/b.rs\n<<<<\na\n====\n>>>>\n";
        assert!(error(edits).contains("no file src/b.rs"));
    }

    #[test]
    fn a_block_that_is_not_well_formed_is_an_error_with_its_line() {
        let check = |edits: &str, expected: &str| assert_eq!(error(edits), expected);
        check("<<<<\na\n====\n>>>>\n", "edits.txt:4: no `### FILE` is above");
        check("### a\n====\n", "edits.txt:2: this mark has no `<<<<`");
        check("### a\n<<<<\na\n>>>>\n", "edits.txt:4: this mark does not belong here");
        check("### a\n<<<<\n====\n>>>>\n", "edits.txt:4: a part of the old text is empty");
        check("### a\n<<<<\na\n====\n", "edits.txt: the last block has no `>>>>`");
    }
}
