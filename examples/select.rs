//! Shows which server an operation would go to, and why: `--help` shows the usage.

use std::{env, process::ExitCode};

use sdam_examples::{
    exit::{self, Exit},
    select::{self, Command},
};

fn main() -> ExitCode {
    let exit = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => exit::print(select::USAGE),
        Ok(Command::Select(arguments)) => {
            Exit::of(exit::run(|console| select::run(&arguments, console)))
        }
        Err(error) => {
            eprintln!("error: {error}");
            Exit::CONFIGURATION
        }
    };
    exit.into()
}
