//! `cargo xtask mutants`: tests whether the oracles of the simulation, the loom models and the
//! fast tests detect deliberate bugs.

mod sample;
mod table;
mod threads;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use self::table::{MUTANTS, Mutant};
use self::threads::THREAD_MUTANTS;
use crate::Result;
use crate::args::Args;
use crate::cargo::{cargo, output, root};
use crate::loom::models;

pub(crate) const USAGE: &str = "\
insert deliberate bugs and show which oracle, model or test detects them

usage: cargo xtask mutants [NAME]...
       cargo xtask mutants --sample K/N [--package NAME]...

Copies the workspace to target/mutants, inserts one bug after the other there (or those named), and
runs simulated seeds until an oracle detects it. Prints each mutant with the oracle and the seed.
Fails if 10,000 seeds of every scenario do not detect one.

The simulation has one thread. Bugs that show only between threads must be detected by their model
of `cargo xtask loom`.

With --sample, cargo-mutants changes every Nth place of sdam-core, sdam-select, sdam-events, sdam,
sdam-transport, sdam-pool and sdam-auth, beginning with the Kth (from 0), or of the packages named.
Runs the crate's own tests first. If they detect too few, runs every test that needs no real server,
and the official files, for the undetected changes. Fails if more than 5 of 100 changes that compile are not detected.
.cargo/mutants.toml lists exclusions with reasons; the results are in target/mutants-sample. On an
idle machine 0/8 takes more than an hour.

Why both: cargo-mutants shows whether any test detects a small change. The deliberate bugs show
which oracle or model detects a broken rule, which the failure of a unit test does not.";

/// The scenarios that are run, with the number of seeds of each.
const TRIALS: &[(&str, &str)] = &[
    ("random", "0..4000"),
    ("failover", "0..2000"),
    ("partition", "0..2000"),
    ("flapping", "0..2000"),
];

/// The check that has to detect a mutant.
#[derive(Clone, Copy)]
enum Detector {
    Simulation,
    /// The models whose names begin with this prefix.
    Models(&'static str),
}

/// The outcome of a mutant.
enum Outcome {
    /// An oracle or a model detected it, `with` a seed of a scenario or in some interleaving.
    Caught {
        by: String,
        with: String,
    },
    Survived,
}

pub(crate) fn run(mut args: Args) -> Result<()> {
    if let Some(shard) = args.option("--sample")? {
        return sample::run(&shard, args);
    }
    let mut chosen = Vec::new();
    while let Some(name) = args.positional() {
        let found = all().find(|(_, mutant)| mutant.name == name);
        chosen.push(found.ok_or_else(|| format!("no such mutant: {name}\n\n{}", names()))?);
    }
    args.finish()?;
    if chosen.is_empty() {
        chosen.extend(all());
    }
    for (_, mutant) in &chosen {
        mutant.patch(&fs::read_to_string(root().join(mutant.file))?)?;
    }
    let copy = root().join("target/mutants");
    copy_workspace(&copy)?;
    let mut survivors = Vec::new();
    println!("| mutant | what is wrong | caught by | with |");
    println!("| --- | --- | --- | --- |");
    for (detector, mutant) in chosen {
        let path = copy.join(mutant.file);
        let original = fs::read_to_string(&path)?;
        fs::write(&path, mutant.patch(&original)?)?;
        let outcome = match detector {
            Detector::Simulation => simulate(&copy),
            Detector::Models(prefix) => interleave(&copy, mutant, prefix),
        };
        fs::write(&path, original)?;
        let (by, with) = match outcome.map_err(|error| format!("{}: {error}", mutant.name))? {
            Outcome::Caught { by, with } => (by, with),
            Outcome::Survived => {
                survivors.push(mutant.name);
                ("nothing".to_owned(), String::new())
            }
        };
        println!("| {} | {} | {by} | {with} |", mutant.name, mutant.about);
    }
    if survivors.is_empty() {
        Ok(())
    } else {
        Err(format!("not caught: {}", survivors.join(", ")).into())
    }
}

/// Returns every mutant with the check that has to detect it.
fn all() -> impl Iterator<Item = (Detector, &'static Mutant)> {
    let simulated = MUTANTS.iter().map(|mutant| (Detector::Simulation, mutant));
    let modelled = THREAD_MUTANTS.iter();
    simulated.chain(modelled.map(|(models, mutant)| (Detector::Models(models), mutant)))
}

fn names() -> String {
    let line = |(_, mutant): (_, &Mutant)| format!("  {:24} {}\n", mutant.name, mutant.about);
    all().map(line).collect()
}

/// Updates the copy. Unchanged files keep their date, so that little is rebuilt.
fn copy_workspace(copy: &Path) -> Result<()> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let files = output(Command::new("git").args(arguments).current_dir(root()))?;
    for file in files.lines() {
        let (from, to) = (root().join(file), copy.join(file));
        // Deleted without a commit of the deletion.
        let Ok(bytes) = fs::read(&from) else {
            continue;
        };
        if fs::read(&to).is_ok_and(|present| present == bytes) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, bytes)?;
    }
    Ok(())
}

/// Builds the copy and runs it until an oracle detects the mutant.
fn simulate(copy: &Path) -> Result<Outcome> {
    let build = root().join("target/mutants-build");
    let arguments = [
        "build",
        "--quiet",
        "--profile",
        "sim",
        "--package",
        "sdam-chaos",
    ];
    output(
        cargo()
            .args(arguments)
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", &build)
            // Deliberate bugs may cause warnings.
            .env("RUSTFLAGS", "--cap-lints=allow"),
    )?;
    for (scenario, seeds) in TRIALS {
        let mut runner = Command::new(build.join("sim/sdam-chaos"));
        runner.args([
            "--once",
            "--probe",
            "--scenario",
            scenario,
            "--seeds",
            seeds,
        ]);
        let found = runner.output()?;
        let found = String::from_utf8_lossy(&found.stdout);
        let caught = found.lines().find_map(|line| line.strip_prefix("caught "));
        if let Some((oracle, seed)) = caught.and_then(|caught| caught.split_once(' ')) {
            return Ok(Outcome::Caught {
                by: oracle.to_owned(),
                with: format!("{scenario} {seed}"),
            });
        }
    }
    Ok(Outcome::Survived)
}

/// Builds the models of the mutated crate and runs those whose names begin with `prefix`.
fn interleave(copy: &Path, mutant: &Mutant, prefix: &str) -> Result<Outcome> {
    let (package, _) = mutant.file.split_once('/').unwrap_or_default();
    // A compile error does not count as detection.
    output(models(copy, &[package], prefix).arg("--list"))?;
    let found = models(copy, &[package], prefix).output()?;
    if found.status.success() {
        return Ok(Outcome::Survived);
    }
    // A deadlock may end the process before it has listed the failed models.
    let text = [found.stdout, found.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let failed: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("thread 'models::")?.split_once('\''))
        .map(|(model, _)| model)
        .collect();
    if failed.is_empty() {
        return Err(format!("the models failed, but the output names none: {text}").into());
    }
    Ok(Outcome::Caught {
        by: failed.into_iter().collect::<Vec<_>>().join(", "),
        with: "some interleaving".to_owned(),
    })
}

impl Mutant {
    /// Returns the text with the mutation.
    ///
    /// # Errors
    /// When the text is not found exactly once: the table has to follow the code.
    fn patch(&self, text: &str) -> Result<String> {
        match text.matches(self.find).count() {
            1 => Ok(text.replacen(self.find, self.replace, 1)),
            count => Err(format!(
                "mutant {}: its text is found {count} times in {}, not once",
                self.name, self.file
            )
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_matches_exactly_one_place() {
        let mut names: Vec<_> = all().map(|(_, mutant)| mutant.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "names are unique");
        for (_, mutant) in all() {
            let text = fs::read_to_string(root().join(mutant.file)).unwrap();
            assert_ne!(mutant.patch(&text).unwrap(), text, "{}", mutant.name);
        }
    }
}
