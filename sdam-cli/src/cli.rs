//! The command line: its subcommands, the values of options, help, errors and manual pages.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    pin::pin,
    str::FromStr,
    time::Duration,
};

use clap::{
    Args, CommandFactory, FromArgMatches, Parser, Subcommand,
    builder::PossibleValuesParser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;
use futures::future::select;

#[cfg(feature = "export")]
use crate::export;
use crate::{
    doctor,
    exit::{self, Exit, Failure},
    explain, files, log,
    output::{Output, abandoned, console, standard_error, standard_output},
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

/// The text that the help of `man` shows after the options.
const AFTER_MAN: &str = "\
In a folder `share/man/man1` beside the folder of the program, `man` finds the pages: `man sdam`, \
`man sdam-watch`.

Exit codes: 0 done, 3 the command line is wrong, 4 the pages cannot be written.

Example:
  sdam man --dir ~/.cargo/share/man/man1";

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
    Man(Man),
}

/// Prints a manual page, in troff, or writes all of them into a folder.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = AFTER_MAN)]
struct Man {
    /// The subcommand that the page describes [default: the program].
    #[arg(conflicts_with = "dir", hide_possible_values = true)]
    command: Option<String>,
    /// Write all pages into the folder DIR, which is created if it is missing.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
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
                        // Let a signal kill the process: an exit code of 0 to 2 would describe the
                        // state of the deployment.
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
                    let crate::output::Console { output, remarks, .. } = console;
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
            Command::Man(arguments) => print_pages(&arguments, command()),
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

/// Prints one page of `program`, or writes all of its pages into a folder.
fn print_pages(arguments: &Man, program: clap::Command) -> io::Result<Exit> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    if let Some(folder) = &arguments.dir {
        return match write_pages(folder, &program) {
            Ok(()) => Ok(Exit::SUCCESS),
            Err(failure) => failure.report(&mut standard_error()),
        };
    }
    let command = match &arguments.command {
        None => &program,
        Some(name) => program.find_subcommand(name).unwrap_or(&program),
    };
    Ok(exit::print(&page(command)?))
}

/// Writes the pages of `program` and of its subcommands into `folder`.
fn write_pages(folder: &Path, program: &clap::Command) -> Result<(), Failure> {
    let failed = |error| Failure::other(files::cannot_write(folder.display(), &error));
    fs::create_dir_all(folder).map_err(failed)?;
    for command in [program].into_iter().chain(program.get_subcommands()) {
        let file = folder.join(format!("{}.1", page_title(command)));
        let failed = |error| Failure::other(files::cannot_write(file.display(), &error));
        page(command).and_then(|page| fs::write(&file, page)).map_err(failed)?;
    }
    Ok(())
}

/// Returns the name of a command's page, such as `sdam-watch`.
fn page_title(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Renders the manual page of a command.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let page =
        clap_mangen::Man::new(command.clone()).source(concat!("sdam ", env!("CARGO_PKG_VERSION")));
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    let notes = command.get_after_help().map(ToString::to_string);
    notes_section(&mut text, &notes.unwrap_or_default())?;
    Ok(text)
}

/// Renders `notes`, the text after the options in the help, as a section. Lets troff fill
/// paragraphs, but keeps indented lines unchanged.
fn notes_section(page: &mut impl Write, notes: &str) -> io::Result<()> {
    writeln!(page, ".SH NOTES")?;
    let mut is_indented = false;
    for line in notes.lines() {
        if line.starts_with("  ") != is_indented && !line.is_empty() {
            is_indented = !is_indented;
            writeln!(page, "{}", if is_indented { ".RS 2\n.nf" } else { ".fi\n.RE" })?;
        }
        if line.is_empty() {
            writeln!(page, ".PP")?;
        } else {
            let text = line.strip_prefix("  ").unwrap_or(line);
            writeln!(page, "\\&{}", escaped(text))?;
        }
    }
    if is_indented {
        writeln!(page, ".fi\n.RE")?;
    }
    Ok(())
}

/// Escapes characters that troff would interpret or replace.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('~', "\\(ti")
        .replace('^', "\\(ha")
        .replace('"', "\\(dq")
}

/// The default port of name servers.
const DNS_PORT: u16 = 53;

/// Parses a number of seconds, such as `2.5`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = f64::from_str(text).ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "it needs a number of seconds, for example 2.5".to_owned())
}

/// Parses a number of seconds that must be positive.
pub(crate) fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("it needs a number of seconds above 0, for example 2.5".to_owned()),
        duration => Ok(duration),
    }
}

/// Returns a parser for whole numbers in `range`.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = u64::from_str(text).ok();
        let number = number.filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("it needs a whole number from {least} to {most}"))
    }
}

/// Parses an address to listen on.
#[cfg(feature = "export")]
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:");
    let local = port.map(|port| format!("127.0.0.1:{port}"));
    let address = local.as_deref().unwrap_or(text).parse();
    address.map_err(|_| {
        "it needs an IP address of this host and a port, for example 127.0.0.1:9000 or \
         0.0.0.0:9000"
            .to_owned()
    })
}

/// Parses the address of a name server; the port is optional.
pub(crate) fn name_server(text: &str) -> Result<SocketAddr, String> {
    let with_port = SocketAddr::from_str(text).ok();
    let without = || IpAddr::from_str(text).map(|ip| SocketAddr::new(ip, DNS_PORT));
    with_port.map_or_else(without, Ok).map_err(|_| {
        "it needs the IP address of a DNS server, for example 10.0.0.2 or 10.0.0.2:5353".to_owned()
    })
}

/// Returns the arguments of an empty command line.
pub(crate) fn defaults<A: clap::Args>() -> A {
    let matches = A::augment_args(clap::Command::new("")).get_matches_from([""]);
    A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
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
        doctor: Doctor,
        explain: Explain,
        serve: Serve,
        watch: Watch,
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn numbers_are_within_their_range() {
        let check = |text, expected: Option<u16>| assert_eq!(whole(1..=9)(text).ok(), expected);
        check("1", Some(1));
        check("9", Some(9));
        for text in ["0", "10", "-1", "x", "", "1.5", "99999999999999999999"] {
            check(text, None);
        }
        assert!(some_seconds("0").is_err());
        assert_eq!(some_seconds(".5"), Ok(Duration::from_millis(500)));
    }

    #[cfg(feature = "export")]
    #[test]
    fn addresses_may_leave_out_what_is_usual() {
        let check = |parsed: Result<SocketAddr, String>, expected: &str| {
            assert_eq!(parsed.unwrap().to_string(), expected);
        };
        check(listen_address("localhost:1"), "127.0.0.1:1");
        check(listen_address("[::1]:1"), "[::1]:1");
        check(name_server("10.0.0.2"), "10.0.0.2:53");
        check(name_server("::1"), "[::1]:53");
        check(name_server("10.0.0.2:5353"), "10.0.0.2:5353");
        for text in ["9216", "localhost", "localhost:x", "127.0.0.1:99999", "db:1"] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }
}
