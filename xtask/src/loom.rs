//! `cargo xtask loom`: runs the loom models through every interleaving of their threads.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::Result;
use crate::cargo::{cargo, show};

/// The packages with models.
const PACKAGES: &[&str] = &["sdam", "sdam-events", "sdam-pool"];

/// The numbers of models that ran and of their interleavings.
#[derive(Debug, Default, PartialEq)]
struct Ran {
    models: u64,
    interleavings: u64,
}

/// Runs the models whose names in their crate begin with `name`.
///
/// # Errors
/// If a model fails, or if no model runs. Without a name, a model must run in each package.
pub(crate) fn run(name: &str) -> Result<()> {
    let mut ran = Ran::default();
    for package in PACKAGES {
        let before = ran.models;
        run_package(package, name, &mut ran)?;
        if name.is_empty() && ran.models == before {
            return Err(format!("no model of {package} ran").into());
        }
    }
    if ran.models == 0 {
        return Err(format!("there is no model whose name begins with `{name}`").into());
    }
    println!("{} models, {} interleavings", ran.models, ran.interleavings);
    Ok(())
}

fn run_package(package: &str, name: &str, ran: &mut Ran) -> Result<()> {
    let mut command = cargo();
    command
        .env("RUSTFLAGS", "--cfg sdam_loom --cap-lints=warn")
        .args(["test", "--quiet", "--profile", "loom", "--lib", "--package", package])
        .args(["--no-default-features", "--target-dir", "target/loom"])
        // Run only the models, because the unit tests in these files need ordinary atomics.
        .args(["--", &format!("models::{name}"), "--show-output"])
        .stdout(Stdio::piped());
    let shown = show(&command);
    eprintln!("$ {shown}");
    let mut child = command.spawn()?;
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line?;
        println!("{line}");
        ran.read(&line);
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}").into()) }
}

impl Ran {
    /// Reads a line of the output of a crate's models, such as `models::a::b: 12 interleavings`.
    fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("models::")
            && let Some((_, count)) = rest.split_once(": ")
            && let Some((count, _)) = count.split_once(" interleavings")
            && let Ok(count @ 1..) = count.parse::<u64>()
        {
            self.models += 1;
            self.interleavings += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_that_ran_are_read_from_the_output() {
        let mut ran = Ran::default();
        for line in [
            "running 2 tests",
            "models::a::one: 12 interleavings with at most 2 preemptions",
            "---- models::a::two stdout ----",
            "models::two: 5 interleavings",
        ] {
            ran.read(line);
        }
        assert_eq!(ran, Ran { models: 2, interleavings: 17 });
    }
}
