//! Shows what a deployment consists of, and every change of it: `--help` says how.

use std::{env, io, process::ExitCode};

use sdam_examples::{
    exit::{self, Exit},
    log,
    watch::{self, Arguments, Command, Console},
};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let exit = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => exit::say(watch::USAGE),
        Ok(Command::Watch(mut arguments)) => {
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
    // Monitors work on a thread of their own, so that a terminal that is slow to read cannot make
    // servers look slow.
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (console, interrupt) = (Console::standard(), exit::interrupted());
    runtime.block_on(watch::run(arguments, console, interrupt))
}
