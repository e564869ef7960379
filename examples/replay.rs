//! Replays written or recorded replies and errors, and shows the resulting topology: `--help`
//! shows the usage.

use std::{
    env,
    fs::File,
    io::{self, BufReader, IsTerminal},
    process::ExitCode,
};

use sdam_examples::{
    exit::{self, Exit},
    replay::{self, Command},
};

fn main() -> ExitCode {
    let exit = match Command::parse(env::args_os().skip(1)) {
        Ok(Command::Help) => exit::print(replay::USAGE),
        Ok(Command::Lines) => {
            let input = io::stdin().lock();
            if input.is_terminal() {
                eprintln!("reading lines of JSON from the terminal; `--help` says which");
            }
            Exit::of(replay::run(input, io::stdout().lock(), io::stderr()))
        }
        Ok(Command::Trace(path)) => Exit::of(File::open(path).and_then(|file| {
            replay::trace(BufReader::new(file), io::stdout().lock(), io::stderr())
        })),
        Err(error) => {
            eprintln!("error: {error}");
            Exit::CONFIGURATION
        }
    };
    exit.into()
}
