//! Serves pages about a deployment over HTTP: `--help` shows the usage.

use std::{env, process::ExitCode};

use sdam_examples::{
    exit::{self, Exit},
    log,
    metrics::{self, Command},
    watch::Console,
};

fn main() -> ExitCode {
    let exit = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => exit::print(metrics::USAGE),
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
