//! The program `sdam`.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    sdam_cli::run(env::args_os()).into()
}
