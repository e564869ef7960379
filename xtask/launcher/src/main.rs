//! Builds `xtask` with the features and the profile of `cargo test --workspace --all-features`, and
//! runs it. `cargo run --package xtask` would build dozens of crates once more, with fewer features.

use std::error::Error;
use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use std::{env, io};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut build = command(env::var_os("CARGO").ok_or("this program is run by `cargo xtask`")?);
    build.args(["build", "--quiet", "--profile", "test", "--workspace", "--all-features"]);
    // The second target is a short test: it makes cargo add the features that only tests need.
    build.args(["--bin", "xtask", "--test", "name_server"]);
    if !build.status()?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let program = env::current_exe()?.with_file_name(format!("xtask{}", env::consts::EXE_SUFFIX));
    let status = command(program).args(env::args_os().skip(1)).status()?;
    let code = status.code().ok_or_else(|| io::Error::other(format!("xtask ended: {status}")))?;
    Ok(ExitCode::from(u8::try_from(code)?))
}

/// Creates a command without the variables that describe this package. If they came and went, the
/// build script of ring would run again, and ring and all that depends on it would be built again.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("CARGO_PKG_") || shown.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}
