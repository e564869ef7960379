//! Selects a server without any async runtime. `--help` shows the usage.

use std::{env, io, process::ExitCode};

use sdam_examples_scan::{Command, USAGE, run};

fn main() -> ExitCode {
    let outcome = match Command::parse(env::args().skip(1)) {
        Ok(Command::Help) => {
            print!("{USAGE}");
            Ok(())
        }
        Ok(Command::Select(request)) => run(&request, &mut io::stdout().lock()),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
