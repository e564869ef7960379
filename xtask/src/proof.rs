//! `cargo xtask proof`: runs the commands of docs/proof.md, and writes their results to the page.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser as _;

use crate::cargo::{cargo, output, root};
use crate::{Arguments, Result};

/// The page, relative to the root of the workspace.
const PAGE: &str = "docs/proof.md";

/// The result of a command that was not run yet.
const NOT_RUN: &str = "not run yet";
/// The result of a command that failed.
const FAILED: &str = "FAILED";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only the commands that contain this text, such as `loom`. If the text is a whole
    /// command, such as `xtask mutants`, run only that one.
    #[arg(default_value = "")]
    name: String,
}

/// A line of the page: a command and its last result.
#[derive(Debug, PartialEq, Eq)]
struct Row<'p> {
    /// The arguments of cargo.
    command: &'p str,
    result: &'p str,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path)?;
    let rows = chosen(page.lines().filter_map(Row::parse).collect(), &options.name);
    if rows.is_empty() {
        return Err(format!("no command of {PAGE} contains `{}`", options.name).into());
    }
    let mut failed = Vec::new();
    for row in rows {
        let (started, commit) = (Instant::now(), commit()?);
        let (passed, last) = call(row.command)?;
        if self::commit()? != commit {
            return Err("the code was changed while the command ran".into());
        }
        let outcome = match last {
            _ if !passed => FAILED.to_owned(),
            last if last.is_empty() => "passed".to_owned(),
            last => last,
        };
        let result = format!("{outcome} ({}, {commit})", rounded(started.elapsed()));
        // The page is read again, so that a person may edit it while the commands run.
        let page = fs::read_to_string(&path)?;
        fs::write(&path, with_result(&page, row.command, &result))?;
        if !passed {
            failed.push(row.command);
        }
    }
    match &*failed {
        [] => Ok(()),
        failed => Err(format!("failed: cargo {}", failed.join(", cargo ")).into()),
    }
}

/// Returns the row whose command is `name`, or if there is none, those whose command contains it.
fn chosen<'p>(mut rows: Vec<Row<'p>>, name: &str) -> Vec<Row<'p>> {
    let name = name.strip_prefix("cargo ").unwrap_or(name);
    let is_exact = rows.iter().any(|row| row.command == name);
    rows.retain(|row| if is_exact { row.command == name } else { row.command.contains(name) });
    rows
}

/// Returns the lines of the page that name no command of this program, or have no result.
pub(crate) fn violations() -> Result<Vec<String>> {
    let page = fs::read_to_string(root().join(PAGE))?;
    let rows = page.lines().filter_map(Row::parse);
    Ok(rows.filter_map(|row| row.complaint()).collect())
}

impl<'p> Row<'p> {
    fn parse(line: &'p str) -> Option<Self> {
        let (command, result) = line.strip_prefix("- `cargo ")?.split_once('`')?;
        Some(Self { command, result: result.trim_start_matches(':').trim() })
    }

    fn complaint(&self) -> Option<String> {
        if let Some(own) = self.command.strip_prefix("xtask ") {
            let words = ["cargo xtask"].into_iter().chain(own.split_whitespace());
            if Arguments::try_parse_from(words).is_err() {
                return Some(format!("{PAGE}: there is no command `cargo {}`", self.command));
            }
        }
        let has_failed = self.result.starts_with(FAILED) || self.result.starts_with('(');
        let has_passed = self.result.ends_with(')') && !has_failed;
        let is_good = has_passed || self.result == NOT_RUN;
        (!is_good).then(|| format!("{PAGE}: `cargo {}` has no good result", self.command))
    }
}

/// Returns the current commit and its date.
///
/// # Errors
/// If a file other than the page was changed since, because the results would belong to no commit.
fn commit() -> Result<String> {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root()));
    let changed = git(&["status", "--porcelain", "--", ".", &format!(":!{PAGE}")])?;
    if let Some(first) = changed.lines().next() {
        return Err(format!("commit first, so that the results belong to a commit: {first}").into());
    }
    Ok(git(&["log", "-1", "--format=%h of %cs"])?.trim().to_owned())
}

/// Runs cargo with the arguments, and prints its output. Returns whether it succeeded, and the last
/// line that it wrote to its standard output.
fn call(arguments: &str) -> Result<(bool, String)> {
    eprintln!("$ cargo {arguments}");
    let mut command = cargo();
    // A driver or server that cannot be fetched must not look like one that was tested.
    command.env("SDAM_FOREIGN_REQUIRED", "1").env("SDAM_LIVE_REQUIRED", "1");
    let mut child = command.args(arguments.split_whitespace()).stdout(Stdio::piped()).spawn()?;
    // Many results begin with the name of the command, which the page shows anyway.
    let name = format!("{}: ", arguments.split_whitespace().nth(1).unwrap_or_default());
    let mut last = String::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines) {
        let line = line?;
        println!("{line}");
        if !line.trim().is_empty() {
            let line = line.trim();
            line.strip_prefix(&name).unwrap_or(line).clone_into(&mut last);
        }
    }
    Ok((child.wait()?.success(), last))
}

/// Returns the page with another result of a command.
fn with_result(page: &str, command: &str, result: &str) -> String {
    let lines = page.lines().map(|line| match Row::parse(line) {
        Some(row) if row.command == command => format!("- `cargo {command}`: {result}\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

fn rounded(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_replaces_the_earlier_one_of_the_same_command_only() {
        let page = "# Proof\n- `cargo xtask loom`: old (1 s, a)\n- `cargo xtask loom lanes`:\n";
        let expected = "# Proof\n- `cargo xtask loom`: new (2 s, b)\n- `cargo xtask loom lanes`:\n";
        assert_eq!(with_result(page, "xtask loom", "new (2 s, b)"), expected);
    }

    #[test]
    fn a_whole_command_chooses_one_row() {
        let commands = |name| -> Vec<_> {
            let rows = ["xtask mutants", "xtask mutants --sample 0/8", "xtask loom"];
            let rows = rows.map(|command| Row { command, result: NOT_RUN });
            chosen(rows.into(), name).into_iter().map(|row| row.command).collect()
        };
        assert_eq!(commands("xtask mutants"), ["xtask mutants"]);
        assert_eq!(commands("cargo xtask mutants"), ["xtask mutants"]);
        assert_eq!(commands("mutants"), ["xtask mutants", "xtask mutants --sample 0/8"]);
        assert_eq!(commands("").len(), 3);
        assert!(commands("fuzz").is_empty());
    }

    #[test]
    fn unknown_commands_and_missing_results_are_found() {
        let complaint = |line| Row::parse(line).unwrap().complaint();
        assert_eq!(complaint("- `cargo xtask loom`: 3 models (2 s, b)"), None);
        assert_eq!(complaint("- `cargo test -p sdam`: ok (2 s, b)"), None);
        assert_eq!(complaint("- `cargo xtask loom`: not run yet"), None);
        assert!(complaint("- `cargo xtask loom`:").unwrap().contains("no good result"));
        assert!(complaint("- `cargo xtask loom`: FAILED (1 s, b)").is_some());
        assert!(complaint("- `cargo xtask lom`: ok (2 s, b)").unwrap().contains("no command"));
        assert_eq!(Row::parse("- a `cargo xtask loom`"), None);
    }

    #[test]
    fn times_are_rounded_to_what_a_reader_needs() {
        let shown = [99, 100, 7230].map(|seconds| rounded(Duration::from_secs(seconds)));
        assert_eq!(shown, ["99 s", "2 min", "121 min"]);
    }
}
