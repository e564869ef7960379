//! The command line: subcommands, help, errors.

use std::{
    ffi::OsString,
    io::{self, Write},
    str::FromStr,
    time::Duration,
};

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use clap_complete::Shell;

use crate::{
    compare, doctor,
    exit::{self, Exit},
    explain, export, log, proxy, replay, report, serve,
    target::redact,
    watch::{self, Console},
};

#[cfg(test)]
pub(crate) mod tests;

/// What every page of help ends with.
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 and 2 as the subcommand's help says, 3 the command line or the connection \
string is wrong, 4 another failure.

A connection string may contain a password, which other users of this host see in the list of \
processes: use SDAM_URI or --uri-file instead.";

/// Shows what a client sees of a MongoDB deployment, and why.
///
/// Without a subcommand it shows a simulated replica set and a failover of it.
#[derive(Debug, Parser)]
#[command(name = "sdam", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(infer_long_args = false, disable_help_subcommand = false)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Watch(watch::Arguments),
    Doctor(doctor::Arguments),
    Explain(explain::Arguments),
    Export(export::Arguments),
    Proxy(proxy::Arguments),
    Serve(serve::Arguments),
    Replay(replay::Arguments),
    Report(report::Arguments),
    Compare(compare::Arguments),
    /// Prints the completions of a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Prints the manual page, in troff.
    Man,
}

/// Runs the program with its arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => cli.run(),
        Err(error) => report(&error),
    }
}

impl Cli {
    fn run(self) -> Exit {
        let watch = |mut arguments: watch::Arguments| {
            arguments.log = log::config();
            arguments.screen = watch::has_screen();
            Exit::of(exit::run(|console| async move {
                watch::run(&arguments, console, exit::interrupted()).await
            }))
        };
        match self.command {
            None => watch(watch::Arguments::default()),
            Some(Command::Watch(arguments)) => watch(arguments),
            Some(Command::Doctor(arguments)) => Exit::of(exit::run(|console| async move {
                doctor::run(&arguments, console).await
            })),
            Some(Command::Explain(arguments)) => Exit::of(exit::run(|console| async move {
                explain::run(&arguments, console).await
            })),
            Some(Command::Export(mut arguments)) => {
                arguments.log = log::config();
                Exit::of(exit::run(|console| async move {
                    let Console {
                        output, remarks, ..
                    } = console;
                    export::run(&arguments, output, remarks, exit::interrupted()).await
                }))
            }
            Some(Command::Proxy(arguments)) => Exit::of(exit::run(|console| async move {
                proxy::run(&arguments, console, proxy::signals()).await
            })),
            Some(Command::Serve(arguments)) => Exit::of(serve::run(&arguments)),
            Some(Command::Replay(arguments)) => Exit::of(replay::main(&arguments)),
            Some(Command::Compare(arguments)) => {
                Exit::of(compare::run(&arguments, io::stdout().lock(), io::stderr()))
            }
            Some(Command::Report(arguments)) => {
                Exit::of(report::run(&arguments, io::stdout().lock(), io::stderr()))
            }
            // Rendered first, because the generators panic if their reader has gone.
            Some(Command::Completions { shell }) => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "sdam", &mut text);
                exit::print(&text)
            }
            Some(Command::Man) => {
                let mut text = Vec::new();
                let page = clap_mangen::Man::new(Self::command()).render(&mut text);
                Exit::of(page.map(|()| exit::print(&text)))
            }
        }
    }
}

/// Prints a request for help on standard output, and an error on standard error.
fn report(error: &clap::Error) -> Exit {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return exit::print(error.render().to_string().as_bytes());
    }
    let text = redact(&error.render().to_string());
    // If standard error fails as well, the error is lost.
    let _ = io::stderr().write_all(text.as_bytes());
    Exit::CONFIGURATION
}

/// Parses a number of seconds, such as `2.5`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = f64::from_str(text).ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "it needs a number of seconds, for example 2.5".to_owned())
}
