//! Shows which server an operation would go to, and why: `--help` says how.

use std::{env, io, process::ExitCode};

use sdam_examples::{
    exit::{self, Exit},
    select::{self, Arguments, Command},
    watch::Console,
};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let exit = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => exit::say(select::USAGE),
        Ok(Command::Select(arguments)) => Exit::of(run(&arguments)),
        Err(error) => {
            eprintln!("error: {error}");
            Exit::CONFIGURATION
        }
    };
    exit.into()
}

fn run(arguments: &Arguments) -> io::Result<Exit> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(select::run(arguments, Console::standard()))
}
