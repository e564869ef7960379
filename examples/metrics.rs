//! Serves what is known of a deployment to other programs: `--help` says how.

use std::{env, io, process::ExitCode};

use sdam_examples::{
    exit::{self, Exit},
    log,
    metrics::{self, Arguments, Command},
};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let exit = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => exit::say(metrics::USAGE),
        Ok(Command::Serve(mut arguments)) => {
            arguments.log = log::config();
            Exit::of(run(&arguments))
        }
        Err(error) => {
            eprintln!("error: {error}");
            Exit::CONFIGURATION
        }
    };
    exit.into()
}

fn run(arguments: &Arguments) -> io::Result<Exit> {
    // Monitors work on a thread of their own, apart from whoever asks.
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(metrics::run(
        arguments,
        io::stdout(),
        io::stderr(),
        exit::interrupted(),
    ))
}
