//! Shows the servers of a deployment, and their changes: `--help` shows the usage.

use std::{env, process::ExitCode};

use sdam_examples::{
    exit::{self, Exit},
    log,
    watch::{self, Command},
};

fn main() -> ExitCode {
    let exit = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => exit::print(watch::USAGE),
        Ok(Command::Watch(mut arguments)) => {
            arguments.log = log::config();
            Exit::of(exit::run(|console| {
                watch::run(&arguments, console, exit::interrupted())
            }))
        }
        Err(error) => {
            eprintln!("error: {error}");
            Exit::CONFIGURATION
        }
    };
    exit.into()
}
