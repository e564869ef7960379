//! Shows what a deployment consists of, and every change of it: `--help` says how.

use std::{
    env,
    future::pending,
    io::{self, IsTerminal},
    process::ExitCode,
};

use sdam_examples::{
    exit::{self, Exit},
    log,
    terminal::Palette,
    watch::{self, Arguments, Command, Console},
};
use tokio::{runtime::Builder, signal};

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
    let output = io::stdout().lock();
    let (no_color, term) = (env::var_os("NO_COLOR"), env::var_os("TERM"));
    let palette = Palette::detect(output.is_terminal(), no_color.as_deref(), term.as_deref());
    let console = Console {
        output,
        remarks: io::stderr(),
        palette,
    };
    runtime.block_on(watch::run(arguments, console, async {
        if signal::ctrl_c().await.is_err() {
            // Then Ctrl-C ends the process as usual.
            pending::<()>().await;
        }
    }))
}
