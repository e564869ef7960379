//! `cargo xtask foreign silence`: runs the live tests in which the primary becomes silent, and
//! compares other drivers in the same situation.

use std::path::PathBuf;

use super::{PYMONGO, copied, install, unavailable};
use crate::Result;
use crate::cargo::{cargo, root, run as run_command};

pub(super) fn run(times: usize) -> Result<()> {
    let mut others = Vec::new();
    let mut add = |name, command: Result<String>| match command {
        Ok(command) => {
            others.push(format!("{name}={command}"));
            Ok(())
        }
        Err(error) => unavailable(name, &*error),
    };
    add("PyMongo", pymongo())?;
    add("the Rust driver", rust())?;
    let mut trial = cargo();
    trial.args(["test", "--package", "sdam", "--all-features", "--test", "live"]);
    // The tests run one after another, because they would otherwise disturb each other.
    trial.args(["--", "silence::", "--nocapture", "--test-threads", "1"]);
    trial.env("SDAM_FREEZES", times.to_string()).env("SDAM_OTHER_WRITERS", others.join(";"));
    run_command(&mut trial)
}

fn pymongo() -> Result<String> {
    let version = PYMONGO[0];
    let folder = install(&format!("pymongo-{version}"), &[&format!("pymongo=={version}")])?;
    let program = root().join("proof/foreign/pymongo/write.py");
    Ok(format!("env PYTHONPATH={} python3 {}", folder.display(), program.display()))
}

fn rust() -> Result<String> {
    let files = ["Cargo.toml", "src/main.rs", "src/bin/write.rs"];
    let manifest = copied("rust-driver", &files)?.join("Cargo.toml");
    let mut build = cargo();
    build.args(["build", "--release", "--bin", "write", "--manifest-path"]).arg(&manifest);
    run_command(&mut build)?;
    let program: PathBuf = manifest.with_file_name("target/release/write");
    Ok(program.display().to_string())
}
