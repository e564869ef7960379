//! Pages of the catalogue, which contain prose, and rules with their proofs.

use super::citations::Citations;

/// The prefix of the lines that this program generates: the proofs, in parentheses.
const PROOF: &str = "  (";
/// The words of rules that no test has to cite.
const WEAK: &[&str] = &["SHOULD. ", "MAY. ", "own. ", "observed. "];
/// The prefixes of lines that explain why a rule has no test.
const EXEMPTIONS: &[&str] = &["  By construction: ", "  Caller's duty: ", "  Not offered: "];

/// A page of the catalogue, without the lines that this program generates.
#[derive(Debug)]
pub(super) struct Page {
    lines: Vec<String>,
}

/// A rule from the specifications or this project.
#[derive(Debug)]
pub(super) struct Rule<'p> {
    /// The id, such as `L-43`.
    pub(super) id: &'p str,
    /// True if a test must cite the rule.
    pub(super) needs_proof: bool,
}

impl Page {
    /// Parses a page. Lines that this program generated are removed.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with(PROOF));
        Self { lines: lines.map(str::to_owned).collect() }
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
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
    pub(super) fn render(&self, citations: &Citations) -> String {
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
