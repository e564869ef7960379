//! The example `scan`: selects a server in single-threaded mode and prints the result.
//!
//! The example uses no async runtime: all work happens on the calling thread, during the calls.

use std::{
    error::Error,
    fmt::{self, Display},
    io::Write,
    time::Instant,
};

use sdam::{BlockingTopology, TopologyBuilder};
use sdam_core::{
    options::Options,
    read_preference::{ReadMode, ReadPreference},
};
use sdam_select::criteria::Criteria;
use sdam_sim::serve::ReplicaSet;

/// The result of a step of the example. Any error ends the example.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The usage text.
pub const USAGE: &str = "\
usage: cargo run --package sdam-examples-scan --example scan -- [URI] [MODE]

Scans the deployment at URI, selects a server, and shows what was found. Without URI a simulated
replica set is scanned, whose primary then steps down. MODE is `write`, or a read preference:
primary, primaryPreferred, secondary, secondaryPreferred or nearest. Without MODE the read
preference of the connection string is used.
";

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A request for the usage text.
    Help,
    /// A request to select a server.
    Select(Request),
}

/// The requested selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The connection string; `None` for a simulated deployment.
    pub uri: Option<String>,
    /// The purpose of the selection; `None` for reading with the connection string's read
    /// preference.
    pub purpose: Option<Purpose>,
}

/// The purpose of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
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
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
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
pub fn run(request: &Request, output: &mut impl Write) -> Result<()> {
    if let Some(uri) = &request.uri {
        let mut topology = TopologyBuilder::new(Options::parse(uri)?).blocking()?;
        return show(&mut topology, request, output);
    }
    let set = ReplicaSet::start(3)?;
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
