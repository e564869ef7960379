//! Checks the first words of doc comments and the subjects of commits.

use std::process::Command;

use crate::Result;
use crate::cargo::{output, root};

/// The last commit whose subject is not checked.
const SINCE: &str = "501f86295a47719308d1b5d0e9adf21bc5eda580";

/// The maximum number of characters in a commit subject.
const SUBJECT: usize = 72;

/// Words with which no doc comment may begin, because the sentence would be a question or a
/// fragment.
const FIRST_WORDS: &[&str] =
    &["How", "Of", "That", "Those", "What", "Whether", "Which", "Who", "Whoever"];

/// The beginnings of commit subjects that do not describe the change.
const BEGINNINGS: &[&str] =
    &["A", "An", "Give", "Let", "Name no", "Say", "Some", "Take", "Tell", "The"];

/// Imperatives that have the endings of other verb forms.
const IMPERATIVES: &[&str] = &["Bring", "Embed", "Focus", "Ping", "Shed"];

/// Adds a violation for each doc comment in a file whose first word is one of [`FIRST_WORDS`].
pub(super) fn check_summaries(name: &str, text: &str, violations: &mut Vec<String>) {
    let mut before = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let marker = ["//!", "///"].into_iter().find(|marker| line.starts_with(marker));
        if let Some(marker) = marker.filter(|_| marker != before) {
            let summary = line[marker.len()..].trim_start();
            if let Some(word) = FIRST_WORDS.iter().find(|word| begins_with(summary, word)) {
                violations.push(format!(
                    "{name}:{} begins a doc comment with `{word}`: begin with a verb (\"Returns\") \
                     or with the subject (\"The time\")",
                    index + 1
                ));
            }
        }
        before = marker;
    }
}

/// Adds violations for commit subjects since [`SINCE`] that are too long or not imperative.
///
/// Returns the reason if the subjects cannot be checked.
pub(super) fn check_subjects(violations: &mut Vec<String>) -> Result<Option<String>> {
    if !root().join(".git").exists() {
        return Ok(Some("this is no clone of the repository".into()));
    }
    let git = || {
        let mut command = Command::new("git");
        command.current_dir(root());
        command
    };
    if output(git().args(["cat-file", "-e", &format!("{SINCE}^{{commit}}")])).is_err() {
        return Ok(Some(format!(
            "this clone lacks the commit {}; fetch it with `git fetch --unshallow`",
            &SINCE[..7]
        )));
    }
    let range = format!("{SINCE}..HEAD");
    let subjects = output(git().args(["log", "--no-merges", "--format=%h %s", &range]))?;
    for (commit, subject) in subjects.lines().filter_map(|line| line.split_once(' ')) {
        if let Some(fault) = fault(subject) {
            violations.push(format!(
                "commit {commit} ({subject}) {fault}; change it with `git rebase --interactive`"
            ));
        }
    }
    Ok(None)
}

/// Returns the problem with a subject and its remedy, if there is a problem.
fn fault(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if length > SUBJECT {
        return Some(format!("has a subject of {length} characters: use at most {SUBJECT}"));
    }
    let beginning = BEGINNINGS.iter().find(|word| begins_with(subject, word));
    let word = subject.split(' ').next().unwrap_or_default();
    let is_other_form = !IMPERATIVES.contains(&word)
        && (word.ends_with("ing")
            || word.ends_with("ed") && !word.ends_with("eed")
            || word.ends_with('s') && !word.ends_with("ss"));
    let is_capital = word.starts_with(|first: char| first.is_ascii_uppercase());
    if beginning.is_none() && !is_other_form && is_capital {
        return None;
    }
    let word = beginning.copied().unwrap_or(word);
    Some(format!(
        "begins with `{word}`: begin with an imperative, such as \"Add\", \"Fix\" or \"Return\""
    ))
}

/// Returns whether `text` begins with `word` as a complete word.
fn begins_with(text: &str, word: &str) -> bool {
    text.strip_prefix(word)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_that_begins_with_a_question_word_is_found() {
        let find = |text: &str| {
            let mut violations = Vec::new();
            check_summaries("a.rs", text, &mut violations);
            violations.len()
        };
        for word in FIRST_WORDS {
            assert_eq!(find(&format!("//! {word} it is.\n")), 1, "{word}");
            assert_eq!(find(&format!("struct A {{\n    /// {word}: this.\n")), 1);
        }
        assert_eq!(find("/// Returns\n/// What was given.\n"), 0);
        assert_eq!(find("//! A module.\n/// What it has.\n"), 1);
        assert_eq!(find("/// A field.\na: u8,\n/// Whether b.\nb: bool,\n"), 1);
        assert_eq!(find("/// Whatever is `Offered`.\n// What else?\n"), 0);
    }

    #[test]
    fn a_violation_names_the_place_the_word_and_the_remedy() {
        let mut violations = Vec::new();
        check_summaries("a.rs", "\n/// How long.\n", &mut violations);
        assert_eq!(
            violations,
            [
                "a.rs:2 begins a doc comment with `How`: begin with a verb (\"Returns\") or with the \
                 subject (\"The time\")"
            ]
        );
    }

    #[test]
    fn a_subject_is_a_short_imperative() {
        let good = [
            "Add a test",
            "Name the host in errors",
            "Bring pools back",
            "Pass the clock",
            "Feed",
            "Thread the context through",
            "Proceed",
        ];
        for subject in good {
            assert_eq!(fault(subject), None, "{subject}");
        }
        let bad = [
            "Let readers wait",
            "Name no item of a crate",
            "Added a test",
            "Adding a test",
            "Adds a test",
            "The test",
            "add a test",
            "",
        ];
        for subject in bad {
            assert!(fault(subject).is_some(), "{subject}");
        }
        assert_eq!(fault(&format!("Add {}", "a".repeat(SUBJECT - 4))), None);
        assert_eq!(
            fault(&format!("Add {}", "a".repeat(SUBJECT - 3))).unwrap(),
            "has a subject of 73 characters: use at most 72"
        );
    }
}
