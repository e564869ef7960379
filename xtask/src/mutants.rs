//! `cargo xtask mutants`: tests whether the oracles of the simulation, the loom models, the search
//! of states and the fast tests detect deliberate bugs.

mod sample;
mod survivors;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::{NoExpand, Regex};

use self::sample::Part;
use crate::Result;
use crate::cargo::{cargo, output, root};
use crate::loom::models;

/// The scenarios to run, each with the seeds to use.
const TRIALS: &[(&str, &str)] = &[
    ("random", "0..4000"),
    ("failover", "0..2000"),
    ("partition", "0..2000"),
    ("flapping", "0..2000"),
];

/// The deliberate bugs. The file begins with a description of its format.
const BUGS: &str = include_str!("mutants/bugs.txt");

/// A deliberate bug: a string in a file, and its replacement.
struct Mutant {
    name: &'static str,
    about: &'static str,
    file: &'static str,
    detector: Detector,
    find: Regex,
    replace: String,
}

/// The proof that must detect a mutant.
enum Detector {
    Simulation,
    /// The loom models whose names begin with this string.
    Models(&'static str),
    /// The `cargo xtask states` search that has this name.
    States(&'static str),
}

/// The outcome of testing a mutant.
enum Outcome {
    /// An oracle or a model detected the mutant. `with` identifies the run, for example by its
    /// scenario and seed.
    Caught {
        by: String,
        with: String,
    },
    Survived,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Insert only these bugs.
    names: Vec<String>,
    /// Change every Nth place of the mutated crates instead, beginning with the Kth (from 0), using
    /// cargo-mutants.
    ///
    /// Runs the crate's own tests first. If they detect too few changes, runs every test that needs
    /// no real server, and the official files, for the undetected changes. Fails if more than 3 of
    /// 100 changes that compile are undetected. .cargo/mutants.toml lists exclusions with reasons;
    /// the results are in target/mutants-sample. On an idle machine, 0/8 takes more than an hour.
    #[arg(long, value_name = "K/N", conflicts_with = "names")]
    sample: Option<String>,
    /// Change only lines that differ from this commit, such as `origin/main`.
    ///
    /// Fails if an undetected change is not explained in .cargo/survivors.txt.
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["names", "sample"])]
    changed: Option<String>,
    /// Change only this crate.
    #[arg(long = "package", value_name = "NAME", conflicts_with = "names")]
    packages: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let shard = options.sample.clone().map(Part::Shard);
    if let Some(part) = shard.or_else(|| options.changed.clone().map(Part::Changed)) {
        return sample::run(&part, &options.packages);
    }
    if !options.packages.is_empty() {
        return Err("--package needs --sample or --changed".into());
    }
    let all = all()?;
    let find = |name: &String| {
        let found = all.iter().find(|mutant| mutant.name == name);
        found.ok_or_else(|| format!("no such mutant: {name}\n\n{}", names(&all)))
    };
    let mut chosen = options.names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    if chosen.is_empty() {
        chosen.extend(&all);
    }
    for mutant in &chosen {
        mutant.patch(&fs::read_to_string(root().join(mutant.file))?)?;
    }
    let copy = root().join("target/mutants");
    copy_workspace(&copy)?;
    let (mut survivors, count) = (Vec::new(), chosen.len());
    println!("| mutant | what is wrong | caught by | with |");
    println!("| --- | --- | --- | --- |");
    for mutant in chosen {
        let path = copy.join(mutant.file);
        let original = fs::read_to_string(&path)?;
        fs::write(&path, mutant.patch(&original)?)?;
        let outcome = match mutant.detector {
            Detector::Simulation => simulate(&copy),
            Detector::Models(prefix) => interleave(&copy, mutant, prefix),
            Detector::States(search) => search_states(&copy, search),
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
    println!("mutants: {} of {count} deliberate bugs caught", count - survivors.len());
    if survivors.is_empty() {
        Ok(())
    } else {
        Err(format!("not caught: {}", survivors.join(", ")).into())
    }
}

/// Reads all deliberate bugs.
fn all() -> Result<Vec<Mutant>> {
    let blocks = BUGS.split("\n\n").skip(1);
    let parse = |block| Mutant::parse(block).ok_or_else(|| format!("unreadable mutant: {block}"));
    Ok(blocks.map(parse).collect::<Result<_, _>>()?)
}

/// Returns the deliberate bugs that cannot be inserted into the current code.
pub(crate) fn violations() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for mutant in all()? {
        let text = fs::read_to_string(root().join(mutant.file))?;
        match mutant.patch(&text) {
            Ok(patched) if patched != text => {}
            Ok(_) => found.push(format!("mutant {}: it changes nothing", mutant.name)),
            Err(error) => found.push(error.to_string()),
        }
        if !names.insert(mutant.name) {
            found.push(format!("mutant {}: there are two of this name", mutant.name));
        }
    }
    Ok(found)
}

fn names(all: &[Mutant]) -> String {
    let line = |mutant: &Mutant| format!("  {:24} {}\n", mutant.name, mutant.about);
    all.iter().map(line).collect()
}

/// Updates the copy of the workspace. The time stamps of unchanged files are kept, so that little
/// has to be rebuilt.
fn copy_workspace(copy: &Path) -> Result<()> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let files = output(Command::new("git").args(arguments).current_dir(root()))?;
    for file in files.lines() {
        let (from, to) = (root().join(file), copy.join(file));
        // The file has been deleted. Git still lists it, because the deletion is not committed.
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

/// Builds the copy, and runs simulated seeds until an oracle detects the mutant or all seeds have
/// been run.
fn simulate(copy: &Path) -> Result<Outcome> {
    let program = build(copy, "sdam-chaos")?;
    for (scenario, seeds) in TRIALS {
        let mut runner = Command::new(&program);
        runner.args(["--once", "--probe", "--scenario", scenario, "--seeds", seeds]);
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

/// Builds the copy, and runs the state search named `search`.
fn search_states(copy: &Path, search: &str) -> Result<Outcome> {
    let found = Command::new(build(copy, "sdam-model")?).arg(search).output()?;
    if found.status.success() {
        return Ok(Outcome::Survived);
    }
    let text = String::from_utf8_lossy(&found.stderr);
    let broken = text.lines().find_map(|line| line.strip_prefix("broken "));
    let invariant = broken.and_then(|broken| broken.split_once(": "));
    let Some((with, by)) = invariant else {
        return Err(format!("the search failed, but names no invariant: {text}").into());
    };
    Ok(Outcome::Caught { by: by.chars().take(80).collect(), with: with.to_owned() })
}

/// Builds a program in the copy.
fn build(copy: &Path, package: &str) -> Result<PathBuf> {
    let target = root().join("target/mutants-build");
    let arguments = ["build", "--quiet", "--profile", "sim", "--package", package];
    output(
        cargo()
            .args(arguments)
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", &target)
            // Deliberate bugs may cause warnings.
            .env("RUSTFLAGS", "--cap-lints=allow"),
    )?;
    Ok(target.join("sim").join(package))
}

/// Builds the mutated crate's loom models, and runs those whose names begin with `prefix`.
fn interleave(copy: &Path, mutant: &Mutant, prefix: &str) -> Result<Outcome> {
    let (package, _) = mutant.file.split_once('/').unwrap_or_default();
    // The models are built first, because a compile error does not count as detection.
    output(models(copy, package, prefix).arg("--list"))?;
    let found = models(copy, package, prefix).output()?;
    if found.status.success() {
        return Ok(Outcome::Survived);
    }
    // A deadlock may end the process before the list of failed models is printed.
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
    fn parse(block: &'static str) -> Option<Self> {
        let mut lines = block.lines();
        let (name, about) = lines.next()?.split_once(": ")?;
        let place = lines.next()?.strip_prefix("  in ")?;
        let (file, detector) = if let Some((file, models)) = place.split_once(" by models") {
            (file, Detector::Models(models.trim_start()))
        } else if let Some((file, search)) = place.split_once(" by states ") {
            (file, Detector::States(search))
        } else {
            (place, Detector::Simulation)
        };
        let text = |sign| {
            let lines = lines.clone().filter_map(|line| line.strip_prefix(sign));
            lines.collect::<Vec<_>>().join("\n")
        };
        let words: Vec<_> = text("  -").split_whitespace().map(regex::escape).collect();
        Some(Self {
            name,
            about,
            file,
            detector,
            find: Regex::new(&words.join(r"\s+")).ok()?,
            replace: text("  +"),
        })
    }

    /// Returns the mutated text.
    ///
    /// # Errors
    /// If the string does not occur exactly once in `text`. The list of bugs must then be adapted
    /// to the code.
    fn patch(&self, text: &str) -> Result<String> {
        match self.find.find_iter(text).count() {
            1 => Ok(self.find.replace(text, NoExpand(&self.replace)).into_owned()),
            count => Err(format!(
                "mutant {}: its text is found {count} times in {}, not once",
                self.name, self.file
            )
            .into()),
        }
    }
}
