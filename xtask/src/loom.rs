//! `cargo xtask loom`: runs the loom models through every interleaving of their threads.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;
use crate::cargo::{cargo, root, show};
use crate::shared_state::{PAGE, listed_models};

/// The models that ran, and the number of interleavings.
#[derive(Debug, Default, PartialEq)]
struct Ran {
    models: BTreeSet<String>,
    interleavings: u64,
}

pub(crate) fn run(name: &str) -> Result<()> {
    let expected = matching(listed_models()?, name)?;
    let packages: BTreeSet<_> =
        expected.iter().filter_map(|model| Some(model.split_once("::")?.0)).collect();
    let mut ran = Ran::default();
    for package in packages {
        let mut command = models(&root(), package, name);
        command.arg("--show-output").stdout(Stdio::piped());
        let shown = show(&command);
        eprintln!("$ {shown}");
        let mut child = command.spawn()?;
        for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let line = line?;
            println!("{line}");
            ran.read(package, &line);
        }
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("`{shown}` failed: {status}").into());
        }
    }
    ran.compare(&expected)?;
    println!("{} models, {} interleavings", ran.models.len(), ran.interleavings);
    Ok(())
}

/// Returns those of the listed models whose names in their crate begin with `name`.
///
/// # Errors
/// If there are none.
fn matching(listed: BTreeSet<String>, name: &str) -> Result<BTreeSet<String>> {
    let is_meant =
        |model: &String| model.split_once("::").is_some_and(|(_, own)| own.starts_with(name));
    let expected: BTreeSet<_> = listed.into_iter().filter(is_meant).collect();
    if expected.is_empty() {
        return Err(format!("{PAGE} lists no model whose name begins with `{name}`").into());
    }
    Ok(expected)
}

impl Ran {
    /// Reads a line of the output of a crate's models, such as `models::a::b: 12 interleavings`.
    fn read(&mut self, package: &str, line: &str) {
        if let Some(rest) = line.strip_prefix("models::")
            && let Some((model, count)) = rest.split_once(": ")
            && let Some((count, _)) = count.split_once(" interleavings")
            && let Ok(count @ 1..) = count.parse::<u64>()
        {
            self.models.insert(format!("{package}::{model}"));
            self.interleavings += count;
        }
    }

    /// Returns an error if other models ran than the expected ones.
    fn compare(&self, expected: &BTreeSet<String>) -> Result<()> {
        let lost = expected.difference(&self.models).map(|one| format!("{one} did not run"));
        let unknown = self.models.difference(expected);
        let unknown = unknown.map(|one| format!("{one} ran, but {PAGE} does not list it"));
        let wrong: Vec<_> = lost.chain(unknown).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n       ").into()) }
    }
}

/// Returns a command that builds the loom models of a package in a workspace, and runs those whose
/// names begin with `name`. Arguments added to the command are passed to the test program.
pub(crate) fn models(workspace: &Path, package: &str, name: &str) -> Command {
    let mut command = cargo();
    command
        .current_dir(workspace)
        .env("RUSTFLAGS", "--cfg sdam_loom --cap-lints=warn")
        .args(["test", "--quiet", "--profile", "loom", "--lib", "--package", package])
        .arg("--no-default-features")
        .arg("--target-dir")
        // Not shared with the copy of `cargo xtask mutants`: cargo would take the newest build of
        // either for both.
        .arg(workspace.join("target/loom"))
        // Run only the models, because the unit tests in these files need ordinary atomics.
        .args(["--", &format!("models::{name}")]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(models: &[&str]) -> BTreeSet<String> {
        models.iter().map(|&model| model.to_owned()).collect()
    }

    #[test]
    fn the_models_that_ran_are_read_from_the_output() {
        let mut ran = Ran::default();
        for line in [
            "running 2 tests",
            "models::a::one: 12 interleavings with at most 2 preemptions",
            "models::a::one: 3 interleavings",
            "---- models::a::two stdout ----",
            "models::two: 5 interleavings",
        ] {
            ran.read("sdam", line);
        }
        let expected = Ran { models: set(&["sdam::a::one", "sdam::two"]), interleavings: 20 };
        assert_eq!(ran, expected);
    }

    #[test]
    fn a_model_that_did_not_run_and_one_that_is_not_listed_are_errors() {
        let ran = Ran { models: set(&["sdam::a::one"]), interleavings: 1 };
        assert!(ran.compare(&set(&["sdam::a::one"])).is_ok());
        let error = ran.compare(&set(&["sdam::a::one", "sdam::a::two"])).unwrap_err().to_string();
        assert_eq!(error, "sdam::a::two did not run");
        let error = ran.compare(&set(&[])).unwrap_err().to_string();
        assert!(error.starts_with("sdam::a::one ran, but"), "{error}");
    }

    #[test]
    fn with_a_name_only_the_matching_models_are_expected_and_there_has_to_be_one() {
        let listed = set(&["sdam::a::one", "sdam::b::two", "sdam-pool::a_third"]);
        let found = matching(listed.clone(), "a").unwrap();
        assert_eq!(found, set(&["sdam::a::one", "sdam-pool::a_third"]));
        assert_eq!(matching(listed.clone(), "").unwrap(), listed);
        assert!(matching(listed, "c::").is_err());
    }
}
