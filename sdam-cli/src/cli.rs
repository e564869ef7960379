//! The command line: its subcommands, help and errors.

mod man;

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
    pin::pin,
};

use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    builder::PossibleValuesParser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;
use futures::future::select;

#[cfg(feature = "export")]
use crate::export;
use crate::{
    console::console,
    doctor,
    exit::{self, Exit, Failure},
    explain, files, log,
    output::{Output, abandoned, standard_error, standard_output},
    report, serve,
    target::redact,
    watch,
};

/// The text that the program's help shows after the options.
const AFTER: &str = "\
Exit codes: 0 done, 1 and 2 as the subcommand's help says, 3 the command line or the connection \
string is wrong, 4 another failure. A signal ends a subcommand with 128 and its number, such as \
130 for Ctrl-C, unless the help of the subcommand says otherwise.

A connection string may contain a password, which other users of this host see in the list of \
processes: use SDAM_URI, --uri-file or --password-file instead.

Examples; `sdam serve --port 27017` simulates the deployment of all examples:
  sdam
  sdam watch 'mongodb://127.0.0.1:27017/?replicaSet=rs0'
  sdam help watch";

/// The text that the help of `completions` shows after the options.
const AFTER_COMPLETIONS: &str = "\
For zsh, the file is _sdam in a folder of $fpath; for fish, ~/.config/fish/completions/sdam.fish. \
PowerShell takes them in its profile: sdam completions powershell | Out-String | Invoke-Expression

Exit codes: 0 done, 3 the command line is wrong, 4 another failure.

Example, for bash with the package bash-completion:
  mkdir -p ~/.local/share/bash-completion/completions
  sdam completions bash > ~/.local/share/bash-completion/completions/sdam";

/// Shows what a client sees of a MongoDB deployment, and why.
///
/// Without a subcommand, it shows the deployment of the variable SDAM_URI, or a failover of a
/// simulated replica set.
#[derive(Debug, Parser)]
#[command(name = "sdam", version, after_help = AFTER, max_term_width = 100)]
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
    #[cfg(feature = "export")]
    Export(export::Arguments),
    Serve(serve::Arguments),
    Report(report::Arguments),
    /// Prints the completion script for a shell.
    #[command(after_help = AFTER_COMPLETIONS)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    Man(man::Arguments),
}

/// Returns the definition of the command line.
pub fn command() -> clap::Command {
    // Let clap accept negative numbers as values, so that the check of the range can reject them
    // with its own message.
    let allow = |argument: clap::Arg| argument.allow_negative_numbers(true);
    let takes =
        |argument: &clap::Arg| !argument.is_positional() && argument.get_action().takes_values();
    let program = Cli::command();
    let names = program.get_subcommands().map(|it| it.get_name().to_owned());
    let names = PossibleValuesParser::new(names.collect::<Vec<_>>());
    let program = program.mut_subcommand("man", |man| {
        man.mut_arg("command", |argument| argument.value_parser(names))
    });
    program.mut_subcommands(|subcommand| {
        subcommand.mut_args(|argument| if takes(&argument) { allow(argument) } else { argument })
    })
}

/// Runs the program with the given `arguments`, the first of which is the name of the program.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let matches = command().try_get_matches_from(arguments);
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli.run(),
        Err(error) => report(error),
    }
}

impl Cli {
    /// Returns the subcommand. If it needs a connection string and has none, takes the string from
    /// `variable`, the value of SDAM_URI.
    fn chosen(self, variable: Option<&OsStr>) -> Result<Command, Failure> {
        let is_bare = self.command.is_none();
        let mut command =
            self.command.unwrap_or_else(|| Command::Watch(watch::Arguments::default()));
        match &mut command {
            Command::Watch(watch) => {
                watch.target.or_variable(variable)?;
                watch.target.demo |= is_bare && watch.target.uri.is_none();
            }
            Command::Doctor(doctor) => doctor.target.or_variable(variable)?,
            Command::Explain(explain) => explain.target.or_variable(variable)?,
            #[cfg(feature = "export")]
            Command::Export(export) if export.targets.is_none() => {
                export.target.or_variable(variable)?;
            }
            _ => {}
        }
        Ok(command)
    }

    fn run(self) -> Exit {
        let chosen = match self.chosen(env::var_os("SDAM_URI").as_deref()) {
            Ok(chosen) => chosen,
            Err(failure) => return Exit::of(failure.report(&mut standard_error())),
        };
        Exit::of(match chosen {
            Command::Watch(mut arguments) => {
                arguments.log = log::config();
                arguments.screen = watch::has_screen();
                exit::run(|console| async move {
                    if arguments.wants_screen() {
                        // The full screen itself handles all signals other than Ctrl-C.
                        watch::run(&arguments, console, exit::interrupted()).await
                    } else if arguments.once {
                        // A signal ends it as usual: it must not look like the state of a
                        // deployment.
                        let output = console.output.clone();
                        watch::run(&arguments, console, output.failed()).await
                    } else {
                        let stop = stopped_or_abandoned(console.output.clone());
                        watch::run(&arguments, console, stop).await
                    }
                })
            }
            Command::Doctor(arguments) => exit::run_to_end(doctor::run(&arguments, console())),
            Command::Explain(arguments) => exit::run_to_end(explain::run(&arguments, console())),
            #[cfg(feature = "export")]
            Command::Export(mut arguments) => {
                arguments.log = log::config();
                exit::serve(|console| async move {
                    let crate::console::Console { output, remarks, .. } = console;
                    let stop = stopped_or_unwritable(output.clone());
                    export::run(&arguments, output, remarks, stop).await
                })
            }
            Command::Serve(arguments) => exit::run(|console| async move {
                let stop = stopped_or_abandoned(console.output.clone());
                serve::run(&arguments, console, files::lines, stop).await
            }),
            Command::Report(arguments) => {
                report::run(&arguments, standard_output(), standard_error())
            }
            // Render into memory first, because the generators panic if the reader closes the pipe.
            Command::Completions { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command(), "sdam", &mut text);
                Ok(exit::print(&text))
            }
            Command::Man(arguments) => man::run(&arguments, command()),
        })
    }
}

/// Resolves on Ctrl-C or SIGTERM, or when `output` cannot be written.
async fn stopped_or_unwritable(output: Output) {
    select(pin!(exit::stopped()), pin!(output.failed())).await;
}

/// Resolves like [`stopped_or_unwritable`], or when the reader of standard output closes the pipe.
async fn stopped_or_abandoned(output: Output) {
    select(pin!(stopped_or_unwritable(output)), pin!(abandoned())).await;
}

/// Prints help on standard output and errors on standard error.
fn report(mut error: clap::Error) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return exit::print(error.render().to_string().as_bytes());
    }
    let unknown = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => &**word,
        _ => "",
    };
    let tip = match unknown {
        "export" => Some(
            "this program was built without it; use 'cargo install sdam-cli --features export'"
                .to_owned(),
        ),
        uri if uri.contains("://") => {
            Some(format!("to show this deployment, use 'sdam watch {uri}'"))
        }
        _ => None,
    };
    if let Some(tip) = tip {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    let text = redact(&error.render().to_string());
    // A failure to write to standard error cannot be reported.
    let _ = standard_error().write_all(text.as_bytes());
    Exit::CONFIGURATION
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<Command>, clap::Error> {
        let words = ["sdam"].iter().chain(words);
        let matches = command().try_get_matches_from(words)?;
        Ok(Cli::from_arg_matches(&matches)?.command)
    }

    /// Defines a function for each listed subcommand that parses the subcommand's arguments.
    macro_rules! parsers {
        ($($(#[$meta:meta])* $name:ident: $variant:ident,)*) => {$(
            $(#[$meta])*
            pub(crate) fn $name(words: &[&str]) -> $name::Arguments {
                let words: Vec<_> = [stringify!($name)].iter().chain(words).copied().collect();
                match parse(&words) {
                    Ok(Some(Command::$variant(arguments))) => arguments,
                    other => panic!("{words:?}: {other:?}"),
                }
            }
        )*};
    }

    parsers! {
        #[cfg(feature = "export")]
        export: Export,
        serve: Serve,
        watch: Watch,
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        command().debug_assert();
    }
}
