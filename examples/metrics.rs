//! Serves what is known of a deployment to other programs: `--help` says how.

use std::{env, process::ExitCode};

use sdam_examples::{
    exit::{self, Exit},
    log,
    metrics::{self, Command},
    watch::Console,
};

fn main() -> ExitCode {
    let exit = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => exit::say(metrics::USAGE),
        Ok(Command::Serve(mut arguments)) => {
            arguments.log = log::config();
            Exit::of(exit::run(|console| {
                let Console {
                    output, remarks, ..
                } = console;
                metrics::run(&arguments, output, remarks, exit::interrupted())
            }))
        }
        Err(error) => {
            eprintln!("error: {error}");
            Exit::CONFIGURATION
        }
    };
    exit.into()
}
