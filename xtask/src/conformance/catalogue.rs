//! A page of the catalogue: prose, and rules with their proofs.

use super::citations::Citations;

/// The prefix of generated lines.
const PROOF: &str = "  Proof: ";
/// The prefixes of lines that explain why a rule has no test.
const EXEMPTIONS: &[&str] = &["  By construction: ", "  Caller's duty: ", "  Not offered: "];

/// One page, line by line.
#[derive(Debug, Default)]
pub(super) struct Page {
    lines: Vec<Line>,
}

#[derive(Debug)]
enum Line {
    Prose(String),
    Rule(Rule),
}

/// A rule of the specifications, or of this project.
#[derive(Debug)]
pub(super) struct Rule {
    /// The id, such as `L-43`.
    pub(super) id: String,
    text: String,
    excuse: Option<String>,
}

impl Page {
    /// Parses a page without the previously generated lines.
    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        for line in text.lines() {
            if line.starts_with(PROOF) {
                continue;
            }
            if let Some(id) = defined(line) {
                page.lines.push(Line::Rule(Rule {
                    id: id.to_owned(),
                    text: line.to_owned(),
                    excuse: None,
                }));
                continue;
            }
            match page.lines.last_mut() {
                Some(Line::Rule(rule)) if EXEMPTIONS.iter().any(|word| line.starts_with(word)) => {
                    rule.excuse = Some(line.to_owned());
                }
                _ => page.lines.push(Line::Prose(line.to_owned())),
            }
        }
        page
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.lines.iter().filter_map(|line| match line {
            Line::Rule(rule) => Some(rule),
            Line::Prose(_) => None,
        })
    }

    /// Returns the page with its current proofs.
    pub(super) fn render(&self, citations: &Citations) -> String {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Prose(line) => text.push_str(line),
                Line::Rule(rule) => {
                    text.push_str(&rule.text);
                    if let Some(excuse) = &rule.excuse {
                        text.push('\n');
                        text.push_str(excuse);
                    }
                    if let Some(proof) = citations.proof(&rule.id) {
                        text.push('\n');
                        text.push_str(PROOF);
                        text.push_str(&proof);
                    }
                }
            }
            text.push('\n');
        }
        text
    }
}

impl Rule {
    /// Returns whether a test must cite the rule.
    pub(super) fn needs_proof(&self) -> bool {
        self.excuse.is_none() && self.text.contains("** MUST.")
    }
}

/// Returns the rule that a line defines.
fn defined(line: &str) -> Option<&str> {
    line.strip_prefix("- **")?.split_once("** ").map(|(id, _)| id)
}
