//! `cargo xtask mutants --sample` and `--changed`: tests whether the fast tests detect the mutants of
//! `cargo-mutants`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::survivors::Survivors;
use crate::Result;
use crate::cargo::{cargo, output, root, show};
use crate::spec_test::fetch;

/// A crate whose code is mutated.
struct Subject {
    package: &'static str,
    /// The tests of the first pass, which build quickly and detect most mutants.
    own: &'static [&'static str],
    /// The tests that run only in later passes. They are identified by parts of their names.
    slow: &'static [&'static str],
}

const SUBJECTS: &[Subject] = &[
    Subject {
        package: "sdam-core",
        own: &["--lib", "--test=hello"],
        slow: &["properties", "work_is_bounded"],
    },
    Subject { package: "sdam-select", own: &["--lib"], slow: &[] },
    Subject { package: "sdam-events", own: &["--lib"], slow: &[] },
    Subject {
        package: "sdam",
        own: &["--lib", "--test=simulated"],
        slow: &["concurrent_writes", "backpressure", "properties"],
    },
    // The conformance suite for pools is tested in sdam-pool, with faulty pools.
    Subject {
        package: "sdam-transport",
        own: &["--lib", "--package=sdam-pool", "--test=conformance"],
        slow: &["every_suite_panics"],
    },
    // Most rules for pools are tested in the crate of the engine.
    Subject {
        package: "sdam-pool",
        own: &["--lib", "--package=sdam", "--test=simulated"],
        slow: &["concurrent_writes", "backpressure", "properties"],
    },
    Subject { package: "sdam-auth", own: &["--lib"], slow: &[] },
];

/// The package that runs the official files. Later passes run its tests, but it is not mutated.
const OFFICIAL: &str = "sdam-spec";
/// The tests that need real database servers. They are not run in any pass.
const WITH_SERVERS: &[&str] = &["live"];
/// The tests that take most of the time and detect few mutants. They run only in the last pass.
const LAST: &[&str] = &["authentication", "conformance", "flood_memory", "hello", "sockets"];

/// The folder with the results, below the output folder.
const FOUND: &str = "mutants.out";

/// The percentage of mutants that the tests must detect. Only mutants that compile are counted.
const TARGET: usize = 97;

/// The mutants to test.
pub(super) enum Part {
    /// Every Nth mutant, beginning with the Kth: `K/N`.
    Shard(String),
    /// The mutants of lines that differ from a commit.
    Changed(String),
}

/// The results of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// All mutants, including those that do not compile.
    run: usize,
    viable: usize,
    caught: usize,
    timed_out: usize,
    missed: Vec<String>,
}

pub(super) fn run(part: &Part, packages: &[String]) -> Result<()> {
    let subject = |name: &String| {
        let subject = SUBJECTS.iter().find(|subject| subject.package == name);
        subject.ok_or_else(|| format!("no mutants are made of {name}"))
    };
    let mut chosen = packages.iter().map(subject).collect::<Result<Vec<_>, _>>()?;
    if chosen.is_empty() {
        chosen.extend(SUBJECTS);
    }
    output(cargo().args(["mutants", "--version"]))
        .map_err(|error| format!("{error}\nto have it: cargo install cargo-mutants --locked"))?;
    let corpus = fs::canonicalize(fetch::corpus()?.root())?;
    let copy = root().join("target/mutants");
    super::copy_workspace(&copy)?;
    let survivors = Survivors::read()?;
    let mutated: Vec<_> = SUBJECTS.iter().map(|subject| subject.package).collect();
    survivors.check_packages(&mutated)?;
    let part_arguments = part.arguments()?;
    let mut sum = Counts::default();
    let mut table = vec![
        "| crate | viable | caught by its own tests | by others | timed out | missed |".to_owned(),
        "| --- | --- | --- | --- | --- | --- |".to_owned(),
    ];
    for subject in chosen {
        let out = root().join("target/mutants-sample").join(subject.package);
        let command = |tests: &[&str]| subject.command(&copy, &corpus, tests);
        survivors.check_names(subject.package, &subject.list(&copy, &[])?)?;
        let listed = subject.list(&copy, &part_arguments)?;
        if listed.is_empty() && matches!(part, Part::Changed(_)) {
            continue;
        }
        let first = command(subject.own);
        let first = subject.first_pass(first, &part_arguments, &out.join("first"))?;
        first.check_complete(listed.len())?;
        let mut counts = first.clone();
        for (name, without) in [("second", LAST), ("third", &[])] {
            // The slow passes are not needed if enough mutants are already detected.
            if part.is_satisfied_by(&counts, &survivors) {
                break;
            }
            let tests = every_test(without)?;
            let tests: Vec<_> = tests.iter().map(|test| &**test).collect();
            let later = subject.later_pass(command(&tests), &counts.missed, &out.join(name))?;
            later.check_complete(counts.missed.len())?;
            counts.follow(later);
        }
        table.push(format!(
            "| {} | {} | {} | {} | {} | {} |",
            subject.package,
            counts.viable,
            first.caught,
            counts.caught - first.caught,
            counts.timed_out,
            counts.missed.len()
        ));
        sum.add(counts);
    }
    println!("{}", table.join("\n"));
    sum.verdict(part, &survivors)
}

impl Part {
    fn arguments(&self) -> Result<Vec<String>> {
        match self {
            Self::Shard(shard) => Ok(vec!["--shard".to_owned(), shard.clone()]),
            Self::Changed(commit) => {
                let mut new = Command::new("git");
                new.args(["ls-files", "--others", "--exclude-standard", "--", "*.rs"]);
                if let Some(file) = output(new.current_dir(root()))?.lines().next() {
                    return Err(format!("run `git add --intent-to-add {file}` first").into());
                }
                let mut diff = Command::new("git");
                diff.args(["diff", "--no-ext-diff", commit, "--", "*.rs"]).current_dir(root());
                let path = root().join("target/mutants-changed.diff");
                fs::write(&path, output(&mut diff)? + "\n")?;
                Ok(vec!["--in-diff".to_owned(), path.display().to_string()])
            }
        }
    }

    /// Returns whether `counts` are good enough.
    fn is_satisfied_by(&self, counts: &Counts, survivors: &Survivors) -> bool {
        match self {
            Self::Shard(_) => counts.meets_target(),
            Self::Changed(_) => survivors.unexplained(&counts.missed).is_empty(),
        }
    }
}

impl Subject {
    /// Returns the command that builds and runs `tests` in the copy of the workspace.
    fn command(&self, copy: &Path, corpus: &Path, tests: &[&str]) -> Command {
        let mut command = cargo();
        command
            .args(["mutants", "--in-place", "--package", self.package])
            .args(tests.iter().map(|test| format!("--cargo-arg={test}")))
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", root().join("target/mutants-build"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("SDAM_SPEC_CORPUS", corpus)
            // Without this setting, a case that failed on one mutant would be the first one that
            // Proptest tries on the next mutant.
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        command
    }

    /// Returns the names of the mutants that `part` selects.
    fn list(&self, copy: &Path, part: &[String]) -> Result<Vec<String>> {
        let mut list = cargo();
        list.args(["mutants", "--list", "--package", self.package]).args(part).current_dir(copy);
        Ok(output(&mut list)?.lines().map(str::to_owned).collect())
    }

    fn first_pass(&self, mut command: Command, part: &[String], out: &Path) -> Result<Counts> {
        command.args(part).arg("--output").arg(out);
        if !self.slow.is_empty() {
            command.args(["--", "--"]);
        }
        for slow in self.slow {
            command.args(["--skip", slow]);
        }
        clear(out)?;
        Counts::of(&test(command, out)?)
    }

    /// Runs the tests of all packages on the mutants that the earlier passes did not detect.
    fn later_pass(&self, mut command: Command, missed: &[String], out: &Path) -> Result<Counts> {
        if missed.is_empty() {
            return Ok(Counts::default());
        }
        // `--test-package` cannot be used, because it does not apply to the baseline run.
        for package in packages() {
            command.arg(format!("--cargo-arg=--package={package}"));
        }
        // Filters by name and file do not work for every kind of mutant. Therefore, all other
        // mutants are listed as if an earlier run had detected them.
        let copy = command.get_current_dir().map(Path::to_path_buf).unwrap_or_default();
        let mut others = self.list(&copy, &[])?;
        others.retain(|own| !missed.contains(own));
        clear(out)?;
        fs::create_dir_all(out.join(FOUND))?;
        fs::write(out.join(FOUND).join("caught.txt"), others.join("\n"))?;
        command.arg("--iterate").arg("--output").arg(out);
        Counts::of(&test(command, out)?)
    }
}

/// Returns the packages whose tests run in later passes.
fn packages() -> impl Iterator<Item = &'static str> {
    let mutated = SUBJECTS.iter().map(|subject| subject.package);
    mutated.chain([OFFICIAL])
}

/// Returns the arguments that select all tests that need no real server, except those in `except`.
fn every_test(except: &[&str]) -> Result<BTreeSet<String>> {
    let mut tests = BTreeSet::from(["--lib".to_owned()]);
    for package in packages() {
        let folder = if package == OFFICIAL { "proof/spec" } else { package };
        for entry in fs::read_dir(root().join(folder).join("tests")).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            if !WITH_SERVERS.contains(&&*name)
                && !except.contains(&&*name)
                && (path.join("main.rs").is_file() || path.extension() == Some("rs".as_ref()))
            {
                tests.insert(format!("--test={name}"));
            }
        }
    }
    Ok(tests)
}

/// Removes the results of an earlier run, which could otherwise be mistaken for new ones.
fn clear(out: &Path) -> Result<()> {
    let found = out.join(FOUND);
    if found.exists() {
        fs::remove_dir_all(&found)?;
    }
    Ok(fs::create_dir_all(out)?)
}

/// Runs `cargo-mutants` and returns its results, which it writes below `out`.
fn test(mut command: Command, out: &Path) -> Result<Value> {
    eprintln!("$ {}", show(&command));
    // Ignore the exit code, because `outcomes.json` has more details.
    command.status()?;
    let outcomes = fs::read_to_string(out.join(FOUND).join("outcomes.json"))
        .map_err(|error| format!("cargo mutants has written no outcomes: {error}"))?;
    Ok(serde_json::from_str(&outcomes)?)
}

impl Counts {
    /// Reads the mutants from `outcomes.json`.
    ///
    /// # Errors
    /// If a test failed on the unchanged code, or if a mutant has an unknown outcome.
    fn of(outcomes: &Value) -> Result<Self> {
        let mut sum = Self::default();
        let outcomes = outcomes["outcomes"].as_array();
        let (mut baseline_passed, mut unviable) = (false, 0);
        for outcome in outcomes.into_iter().flatten() {
            let mutant = outcome["scenario"]["Mutant"]["name"].as_str();
            match (mutant, outcome["summary"].as_str()) {
                (None, summary) => baseline_passed = summary == Some("Success"),
                (Some(_), Some("Unviable")) => unviable += 1,
                (Some(_), Some("CaughtMutant")) => sum.caught += 1,
                (Some(_), Some("Timeout")) => sum.timed_out += 1,
                (Some(name), Some("MissedMutant")) => sum.missed.push(name.to_owned()),
                (Some(name), summary) => {
                    return Err(format!("{name}: {summary:?} is an unknown outcome").into());
                }
            }
        }
        if !baseline_passed {
            return Err("the tests of the unchanged code failed or were not run".into());
        }
        sum.viable = sum.caught + sum.timed_out + sum.missed.len();
        sum.run = sum.viable + unviable;
        Ok(sum)
    }

    /// Checks that as many mutants were run as were listed.
    fn check_complete(&self, listed: usize) -> Result<()> {
        if self.run == listed {
            return Ok(());
        }
        Err(format!("{listed} mutants are listed, but {} were run", self.run).into())
    }

    /// Adds the results of a later pass, which ran on the mutants that earlier passes did not
    /// detect.
    fn follow(&mut self, later: Self) {
        self.caught += later.caught;
        self.timed_out += later.timed_out;
        self.missed = later.missed;
    }

    /// Adds the results of another crate.
    fn add(&mut self, other: Self) {
        self.run += other.run;
        self.viable += other.viable;
        self.caught += other.caught;
        self.timed_out += other.timed_out;
        self.missed.extend(other.missed);
    }

    fn detected(&self) -> usize {
        self.caught + self.timed_out
    }

    fn meets_target(&self) -> bool {
        self.viable > 0 && self.detected() * 100 >= self.viable * TARGET
    }

    /// Prints the result. Fails if too few mutants of a shard, or if not all mutants of changed
    /// lines, are detected or explained.
    fn verdict(&self, part: &Part, survivors: &Survivors) -> Result<()> {
        let unexplained = survivors.unexplained(&self.missed);
        for mutant in &self.missed {
            let explained = if unexplained.contains(&mutant) { "missed" } else { "explained" };
            println!("{explained}: {mutant}");
        }
        println!("mutants: {} of {} caught, {} run", self.detected(), self.viable, self.run);
        match part {
            _ if part.is_satisfied_by(self, survivors) => Ok(()),
            Part::Shard(_) => Err(format!("fewer than {TARGET} of a hundred are detected").into()),
            Part::Changed(_) => {
                Err("no test detects a change of the changed lines: write the test, \
                                     or explain the survivor in .cargo/survivors.txt"
                    .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(name: &str, summary: &str) -> Value {
        json!({ "scenario": { "Mutant": { "name": name } }, "summary": summary })
    }

    fn sound() -> Value {
        json!({ "scenario": "Baseline", "summary": "Success" })
    }

    #[test]
    fn outcomes_are_counted_by_the_pass_that_detected_them() {
        let outcomes = json!({ "outcomes": [
            sound(),
            outcome("a", "CaughtMutant"),
            outcome("b", "Unviable"),
            outcome("c", "Timeout"),
            outcome("d", "MissedMutant"),
        ] });
        let counts = Counts::of(&outcomes).unwrap();
        let missed = vec!["d".to_owned()];
        let expected = Counts { run: 4, viable: 3, caught: 1, timed_out: 1, missed };
        assert_eq!(counts, expected);
        assert!(counts.check_complete(4).is_ok());
        assert!(counts.check_complete(5).is_err(), "one mutant was not run");
    }

    #[test]
    fn a_run_without_mutants_or_with_a_failing_baseline_is_an_error() {
        for outcomes in [
            json!({}),
            json!({ "outcomes": [outcome("a", "CaughtMutant")] }),
            json!({ "outcomes": [{ "scenario": "Baseline", "summary": "Failure" }] }),
            json!({ "outcomes": [sound(), outcome("a", "Failure")] }),
        ] {
            assert!(Counts::of(&outcomes).is_err(), "{outcomes}");
        }
        let shard = Part::Shard("0/8".to_owned());
        let verdict = Counts::default().verdict(&shard, &Survivors::default());
        assert!(verdict.is_err(), "no mutant was made");
    }

    #[test]
    fn fewer_than_97_of_100_detected_mutants_are_an_error() {
        let verdict = |missed: usize| {
            let found = |viable, caught, missed| Counts {
                run: viable,
                viable,
                caught,
                timed_out: 0,
                missed: vec!["m".to_owned(); missed],
            };
            let mut first = found(100, 90, 10);
            first.follow(found(10, 10 - missed, missed));
            let mut sum = Counts::default();
            sum.add(first);
            let shard = Part::Shard("0/8".to_owned());
            sum.viable == 100 && sum.verdict(&shard, &Survivors::default()).is_ok()
        };
        assert_eq!([0, 3, 4].map(verdict), [true, true, false]);
    }

    #[test]
    fn only_explained_survivors_are_allowed_in_changed_lines() {
        let survivors = "a/src/b.rs: delete ! in c\n  it is only displayed\n".parse().unwrap();
        let verdict = |missed: &str| {
            let missed = vec![missed.to_owned()];
            let counts = Counts { run: 9, viable: 9, caught: 8, timed_out: 0, missed };
            counts.verdict(&Part::Changed("main".to_owned()), &survivors).is_ok()
        };
        assert!(verdict("a/src/b.rs:7:5: delete ! in c"));
        assert!(!verdict("a/src/b.rs:7:5: delete ! in d"));
    }
}
