//! Selects a server in single-threaded mode and prints the result. It uses no async runtime: all work
//! happens on the calling thread, during the calls.
//!
//! `cargo run -p sdam-examples --example scan -- --help` shows the usage.

use std::{
    env,
    error::Error,
    fmt::{self, Display},
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use sdam::{
    BlockingTopology, Criteria, Options, ReadMode, ReadPreference, TopologyBuilder, sim::Blueprint,
};

/// The result of a step of the example. Any error ends the example.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The usage text.
const USAGE: &str = "\
usage: cargo run -p sdam-examples --example scan -- [URI] [MODE]

Scans the deployment at URI, selects a server, and shows what was found. Without URI a simulated
replica set is scanned, whose primary then steps down. MODE is `write`, or a read preference:
primary, primaryPreferred, secondary, secondaryPreferred or nearest. Without MODE the read
preference of the connection string is used.
";

fn main() -> ExitCode {
    let outcome = match Command::parse(env::args().skip(1)) {
        Ok(Command::Help) => {
            print!("{USAGE}");
            Ok(())
        }
        Ok(Command::Select(request)) => run(&request, &mut io::stdout().lock()),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    /// A request for the usage text.
    Help,
    /// A request to select a server.
    Select(Request),
}

/// The requested selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Request {
    /// The connection string; `None` for a simulated deployment.
    uri: Option<String>,
    /// The purpose of the selection; `None` for reading with the connection string's read
    /// preference.
    purpose: Option<Purpose>,
}

/// The purpose of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A read in this mode.
    Read(ReadMode),
    /// A write.
    Write,
}

impl Command {
    /// Parses the command line, without the name of the program.
    ///
    /// # Errors
    ///
    /// If an argument is neither a connection string nor a mode.
    fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut request = Request::default();
        for argument in arguments {
            match &*argument {
                "-h" | "--help" => return Ok(Self::Help),
                "write" => request.purpose = Some(Purpose::Write),
                uri if uri.starts_with("mongodb") => request.uri = Some(argument),
                mode => {
                    let mode = ReadMode::parse(mode).ok_or_else(|| {
                        format!("`{argument}` is neither a connection string nor a mode")
                    })?;
                    request.purpose = Some(Purpose::Read(mode));
                }
            }
        }
        Ok(Self::Select(request))
    }
}

/// Makes the requested selection, and prints the result to `output`.
///
/// # Errors
///
/// If no server was selected, or another error occurred.
fn run(request: &Request, output: &mut impl Write) -> Result<()> {
    if let Some(uri) = &request.uri {
        let mut topology = TopologyBuilder::new(Options::parse(uri)?).blocking()?;
        return show(&mut topology, request, output);
    }
    let set = Blueprint::replica_set(3).serve()?;
    writeln!(output, "a simulated deployment: {}", set.uri())?;
    let builder = TopologyBuilder::new(Options::parse(set.uri())?)
        .options(|options| options.server_selection_try_once = Some(false));
    let mut topology = builder.blocking()?;
    show(&mut topology, request, output)?;
    writeln!(output, "\nits primary steps down, and all servers are scanned again")?;
    set.step_down()?;
    topology.scan();
    show(&mut topology, request, output)
}

/// Selects a server, and prints the server, the time that the selection took, and the topology.
fn show(topology: &mut BlockingTopology, request: &Request, output: &mut impl Write) -> Result<()> {
    let criteria = match request.purpose {
        Some(Purpose::Write) => Criteria::write(),
        Some(Purpose::Read(mode)) => Criteria::read(ReadPreference::new(mode))?,
        None => Criteria::read(topology.options().read_preference.clone())?,
    };
    let begun = Instant::now();
    let selected = topology.select(&criteria);
    let took = begun.elapsed();
    writeln!(output, "{}", Deployment(topology))?;
    let selected = selected?;
    writeln!(
        output,
        "selected {} ({}) for {criteria} in {took:.1?}",
        selected.address(),
        selected.server_type(),
    )?;
    Ok(())
}

/// Displays the topology, one server per line.
struct Deployment<'t>(&'t BlockingTopology);

impl Display for Deployment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let description = self.0.description();
        write!(f, "{}", description.topology_type())?;
        if let Some(name) = description.set_name() {
            write!(f, " {name}")?;
        }
        for server in description.servers() {
            let (address, kind) = (&server.address, server.server_type);
            write!(f, "\n  {address:<24} {kind:<12}")?;
            if let Some(rtt) = server.rtt {
                write!(f, " {:.1?}", rtt.average)?;
            }
            if let Some(error) = &server.error {
                write!(f, " {error:#}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sdam::{SelectionError, sim::Blueprint};

    use super::*;

    fn parse(line: &str) -> Result<Command> {
        Command::parse(line.split_whitespace().map(str::to_owned))
    }

    fn output(request: &Request) -> Result<String> {
        let mut output = Vec::new();
        run(request, &mut output)?;
        Ok(String::from_utf8(output).unwrap())
    }

    #[test]
    fn a_connection_string_and_a_mode_are_accepted_in_any_order() {
        let check = |line, uri: Option<&str>, purpose| {
            let uri = uri.map(str::to_owned);
            let request = Request { uri, purpose };
            assert_eq!(parse(line).unwrap(), Command::Select(request), "{line}");
        };
        let nearest = Some(Purpose::Read(ReadMode::Nearest));
        check("", None, None);
        check("nearest", None, nearest);
        check("mongodb://a write", Some("mongodb://a"), Some(Purpose::Write));
        check("nearest mongodb://a", Some("mongodb://a"), nearest);
        assert_eq!(parse("write --help").unwrap(), Command::Help);
        assert!(parse("farthest").is_err());
    }

    #[test]
    fn without_a_connection_string_a_step_down_is_demonstrated() {
        let request = Request { uri: None, purpose: Some(Purpose::Write) };
        let output = output(&request).unwrap();
        let selected: Vec<&str> = output
            .lines()
            .filter(|line| line.starts_with("selected "))
            .map(|line| line.split(' ').nth(1).unwrap())
            .collect();
        assert_eq!(selected.len(), 2, "{output}");
        assert_ne!(selected[0], selected[1], "{output}");
        assert_eq!(output.matches("RSSecondary").count(), 4, "{output}");
    }

    #[test]
    fn the_read_preference_of_the_connection_string_is_the_default() {
        let set = Blueprint::replica_set(2).serve().unwrap();
        let separator = if set.uri().contains('?') { '&' } else { '?' };
        let uri = format!("{}{separator}readPreference=secondary", set.uri());
        let request = Request { uri: Some(uri), purpose: None };
        let output = output(&request).unwrap();
        assert!(output.contains("(RSSecondary) for query"), "{output}");
    }

    #[test]
    fn an_unreachable_deployment_is_an_error_with_the_reason() {
        let server = Blueprint::standalone().serve().unwrap();
        let uri = Some(server.uri().to_owned());
        drop(server);
        let request = Request { uri, purpose: None };
        let error = output(&request).unwrap_err();
        assert!(error.is::<SelectionError>(), "{error}");
        assert!(error.to_string().contains("after one scan"), "{error}");
    }
}
