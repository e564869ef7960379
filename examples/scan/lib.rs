//! What the example `scan` does: selects a server in single-threaded mode and shows what was found.
//!
//! No async runtime is involved: everything happens on the calling thread, within the calls.

use std::{
    fmt::{self, Display},
    io::{self, Write},
    time::Instant,
};

use sdam::{blocking::Topology, builder::TopologyBuilder, error::SelectionError};
use sdam_core::{
    options::{ConfigError, Options},
    read_preference::{ReadMode, ReadPreference},
};
use sdam_select::criteria::Criteria;
use sdam_sim::serve::{ReplicaSet, ServeError};

/// How the example is used.
pub const USAGE: &str = "\
usage: cargo run --package sdam-examples-scan --example scan -- [URI] [MODE]

Scans the deployment at URI, selects a server, and shows what was found. Without URI a simulated
replica set is scanned, whose primary then steps down. MODE is `write`, or a read preference:
primary, primaryPreferred, secondary, secondaryPreferred or nearest. Without MODE the read
preference of the connection string is used.
";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// To be told how the example is used.
    Help,
    /// To select a server.
    Select(Request),
}

/// Which server to select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The deployment; `None` for a simulated one.
    pub uri: Option<String>,
    /// What for; `None` for reading as the connection string says.
    pub purpose: Option<Purpose>,
}

/// What a server is selected for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading in this mode.
    Read(ReadMode),
    /// Writing.
    Write,
}

impl Command {
    /// Parses the command line, without the name of the program.
    ///
    /// # Errors
    ///
    /// If an argument is neither a connection string nor a mode.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, Error> {
        let mut request = Request::default();
        for argument in arguments {
            match &*argument {
                "-h" | "--help" => return Ok(Self::Help),
                "write" => request.purpose = Some(Purpose::Write),
                uri if uri.starts_with("mongodb") => request.uri = Some(argument),
                mode => match ReadMode::parse(mode) {
                    Some(mode) => request.purpose = Some(Purpose::Read(mode)),
                    None => return Err(Error::Argument(argument)),
                },
            }
        }
        Ok(Self::Select(request))
    }
}

/// Selects what was requested, and shows it on `output`.
///
/// # Errors
///
/// If no server was selected, or something else stands in the way.
pub fn run(request: &Request, output: &mut impl Write) -> Result<(), Error> {
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
    writeln!(
        output,
        "\nits primary steps down, and all servers are scanned again"
    )?;
    set.step_down()?;
    topology.scan();
    show(&mut topology, request, output)
}

/// Selects a server, and shows which one, how long it took, and what is known then.
fn show(topology: &mut Topology, request: &Request, output: &mut impl Write) -> Result<(), Error> {
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
        selected.description().server_type,
    )?;
    Ok(())
}

/// The deployment as it is known, a line for each server.
struct Deployment<'t>(&'t Topology);

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
                write!(f, " {error}")?;
            }
        }
        Ok(())
    }
}

/// Why the example has failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An argument that means nothing.
    Argument(String),
    /// No server was selected; `{:#}` says everything that is known about why.
    Selection(SelectionError),
    /// Anything else.
    Other(Box<dyn std::error::Error>),
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(argument) => {
                write!(f, "`{argument}` is no connection string and no mode")
            }
            Self::Selection(error) => error.fmt(f),
            Self::Other(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<SelectionError> for Error {
    fn from(error: SelectionError) -> Self {
        Self::Selection(error)
    }
}

/// Lets `?` turn errors of these types into [`Error::Other`].
macro_rules! other {
    ($($type:ty),+) => {
        $(impl From<$type> for Error {
            fn from(error: $type) -> Self {
                Self::Other(error.into())
            }
        })+
    };
}

other!(
    ConfigError,
    ServeError,
    io::Error,
    sdam::error::StartError,
    sdam_core::read_preference::InvalidReadPreference
);
