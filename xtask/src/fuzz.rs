//! `cargo xtask fuzz`: runs every fuzz target on the installed toolchain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::cargo::{CHECKS, cargo, files_below, output, root, run as run_command};

/// The compiler flags for coverage and arithmetic checks.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Give each target this number of inputs, which are the same in every run as long as
    /// proof/fuzz/corpus contains only the seeds.
    #[arg(long, default_value_t = 20_000)]
    runs: u32,
    /// Give each target random inputs for this number of seconds instead.
    #[arg(long)]
    seconds: Option<u32>,
    /// Check only that the targets compile, instead.
    #[arg(long, conflicts_with_all = ["runs", "seconds", "target"])]
    check: bool,
    /// Run only this target.
    target: Option<String>,
}

pub(crate) fn run(options: Options) -> Result<()> {
    let folder = root().join("proof/fuzz");
    if options.check {
        return run_command(manifest(&folder, "check").args(["--bins", "--target-dir", CHECKS]));
    }
    let effort = match options.seconds {
        Some(seconds) => vec![format!("-max_total_time={seconds}")],
        None => vec!["-seed=1".to_owned(), format!("-runs={}", options.runs)],
    };
    let mut targets = targets(&folder)?;
    if let Some(only) = options.target {
        targets.retain(|target| *target == only);
        if targets.is_empty() {
            return Err(format!("no fuzz target is called `{only}`").into());
        }
    }
    run_command(manifest(&folder, "run").args(["--bin", "seeds"]))?;
    let binaries = build(&folder, &targets)?;
    for target in &targets {
        println!("{target}: {}", fuzz(&folder, &binaries, target, &effort)?);
    }
    println!("fuzz: no failure of {} targets", targets.len());
    Ok(())
}

/// Returns the names of the targets. Each file contains one target.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let files = files_below(&folder.join("fuzz_targets"))?;
    let names = files.iter().filter_map(|path| path.file_stem());
    Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
}

fn manifest(folder: &Path, subcommand: &str) -> Command {
    let mut command = cargo();
    command
        .args([subcommand, "--quiet", "--locked", "--manifest-path"])
        .arg(folder.join("Cargo.toml"));
    command
}

/// Builds `targets` and returns the folder of their binaries.
fn build(folder: &Path, targets: &[String]) -> Result<PathBuf> {
    let rustc = output(Command::new("rustc").arg("-vV"))?;
    let host = rustc
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .ok_or("rustc does not say for which host it is")?;
    // An explicit target is given, so that `RUSTFLAGS` does not apply to build scripts and macros.
    let mut command = manifest(folder, "build");
    command.env("RUSTFLAGS", FLAGS.join(" ")).args(["--release", "--target", host]);
    for target in targets {
        command.args(["--bin", target]);
    }
    run_command(&mut command)?;
    let target_dir = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) if !folder.is_empty() => root().join(folder),
        _ => folder.join("target"),
    };
    Ok(target_dir.join(host).join("release"))
}

/// Runs one target and returns the last line of its output.
fn fuzz(folder: &Path, binaries: &Path, target: &str, effort: &[String]) -> Result<String> {
    let artifacts = format!("artifacts/{target}/");
    fs::create_dir_all(folder.join(&artifacts))?;
    let mut command = Command::new(binaries.join(target));
    command.current_dir(folder).args(effort).arg(format!("-artifact_prefix={artifacts}"));
    let dictionary = format!("{target}.dict");
    if folder.join(&dictionary).is_file() {
        command.arg(format!("-dict={dictionary}"));
    }
    command.arg(format!("corpus/{target}"));
    let output = command.output()?;
    let (status, text) = (output.status, String::from_utf8_lossy(&output.stderr));
    match text.lines().rev().find(|line| line.starts_with("Done ")) {
        Some(done) if status.success() => Ok(done.to_owned()),
        _ => Err(format!("the fuzz target {target} failed: {status}\n{text}").into()),
    }
}
