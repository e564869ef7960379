//! `cargo xtask foreign first-answer`: measures how soon our client has its first answer, compared
//! with libmongoc's client.

use std::path::PathBuf;
use std::process::Command;

use super::unavailable;
use crate::Result;
use crate::cargo::{cargo, root, run as run_command};

pub(super) fn run() -> Result<()> {
    let mut bench = cargo();
    bench.args([
        "bench",
        "--package",
        "sdam",
        "--all-features",
        "--bench",
        "first",
        "--",
        "first/",
    ]);
    match libmongoc() {
        Ok(program) => drop(bench.env("SDAM_FIRST_ANSWER_OTHER", program)),
        Err(error) => unavailable("libmongoc", &*error)?,
    }
    run_command(&mut bench)
}

/// Compiles the program that uses libmongoc, and returns the program's path.
fn libmongoc() -> Result<PathBuf> {
    let mut query = Command::new("pkg-config");
    let flags = query.args(["--cflags", "--libs", "libmongoc-1.0"]).output()?;
    if !flags.status.success() {
        return Err(String::from_utf8_lossy(&flags.stderr).into());
    }
    let flags = String::from_utf8(flags.stdout)?;
    let folder = root().join("target/foreign");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("first_answer");
    let mut compile = Command::new("cc");
    compile.arg("-O2").arg(root().join("proof/foreign/libmongoc/first_answer.c"));
    run_command(compile.arg("-o").arg(&program).args(flags.split_whitespace()))?;
    Ok(program)
}
