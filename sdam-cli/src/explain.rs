//! `explain`: selects a server for an operation, and explains why the others were rejected.

mod arguments;
mod changes;
mod table;
#[cfg(test)]
mod tests;

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use sdam::{SelectionError, Topology};
use sdam_core::{address::ServerAddress, read_preference::ReadPreference, topology::TopologyType};
use sdam_select::{
    criteria::{Criteria, Operation},
    diagnose::diagnose,
    settings::Settings,
};
use sdam_sim::{
    Blueprint,
    serve::{ServeError, Served},
};

pub use self::arguments::Arguments;
use crate::{
    console::Console,
    exit::Exit,
    failure::Failure,
    target::Target,
    terminal::{Palette, Tone},
    watch::is_known,
};

/// The additional time to wait for answers from the other servers once a suitable server is known.
const EXTRA_TIME: Duration = Duration::from_secs(1);

/// The tags of the simulated members.
const TAGS: [(&str, &str); 3] = [("ny", "1"), ("ny", "2"), ("la", "1")];

/// Selects a server according to `arguments`, and prints the result for each server.
///
/// Must be called within a tokio runtime with I/O and timers.
///
/// # Errors
///
/// If writing to the console fails. Other errors are printed there and set the exit code.
pub async fn run<O: Write, R: Write>(
    arguments: &Arguments,
    mut console: Console<O, R>,
) -> io::Result<Exit> {
    let session = match Session::prepare(arguments).await {
        Ok(session) => session,
        Err(failure) => {
            let mut text = Vec::new();
            let exit = failure.report(&mut text)?;
            let text = table::lines(&String::from_utf8_lossy(&text));
            write!(console.remarks, "{text}")?;
            return Ok(exit);
        }
    };
    let result = session.run(&mut console).await;
    // Close the topology even after a write error, so that no command in progress is cut off.
    session.topology.close().await;
    result
}

/// The deployment to select from.
struct Session {
    topology: Topology,
    criteria: Criteria,
    simulated: Option<Served>,
}

impl Session {
    async fn prepare(arguments: &Arguments) -> Result<Self, Failure> {
        let (uri, simulated) = arguments.target.deployment(simulate)?;
        let runtime = arguments.target.runtime()?;
        let limit = arguments.timeout;
        let options = Target::options_within(&uri, &runtime.backend, limit).await?;
        let criteria = if arguments.write {
            Criteria::write()
        } else {
            let preference = arguments.preference(&options.read_preference);
            Criteria::read(preference).map_err(Failure::config)?
        };
        let builder = arguments.target.builder(options);
        let topology = builder.start(runtime).map_err(Failure::config)?;
        Ok(Self { topology, criteria, simulated })
    }

    async fn run<O: Write, R: Write>(&self, console: &mut Console<O, R>) -> io::Result<Exit> {
        if let Some(set) = &self.simulated {
            let words = Target::simulation(set.uri());
            writeln!(console.output, "{}\n", console.palette.paint(Tone::Faint, words))?;
        }
        let chosen = match self.select().await {
            Ok(chosen) => chosen,
            Err(error) => {
                let exit = fail(&error, console)?;
                write!(console.remarks, "{}", self.changes(Palette::Plain))?;
                return Ok(exit);
            }
        };
        self.show(&chosen, console)
    }

    /// Selects a server once the deployment is known.
    async fn select(&self) -> Result<ServerAddress, SelectionError> {
        self.topology.select(&self.criteria).await?;
        // Ignore a timeout: the output shows which servers have not answered.
        let _known = self
            .topology
            .wait_for(|now| is_known(now.description()).then_some(()), EXTRA_TIME)
            .await;
        let selected = self.topology.select(&self.criteria).await?;
        Ok(selected.address().clone())
    }

    fn show<O: Write, R>(
        &self,
        chosen: &ServerAddress,
        console: &mut Console<O, R>,
    ) -> io::Result<Exit> {
        let description = Arc::clone(self.topology.snapshot().description());
        let explanation = self.topology.explain(&self.criteria);
        let table = table::explanation(console.palette, &description, &explanation, Some(chosen));
        let notes = diagnose(&description, &explanation);
        let notes = table::diagnoses(console.palette, &notes);
        let ignored = match &explanation.operation {
            Operation::Read(preference)
                if explanation.topology_type == TopologyType::Single
                    && **preference != ReadPreference::default() =>
            {
                "note: the connection is direct (Single), so the read preference does not choose\n"
            }
            _ => "",
        };
        let changes = self.changes(console.palette);
        write!(console.output, "{table}{ignored}{notes}{changes}")?;
        let is_served = explanation.serving().next().is_some();
        Ok(if is_served { Exit::SUCCESS } else { Exit::NO_SERVER })
    }

    /// Formats the changes that would make the rejected servers eligible.
    fn changes(&self, palette: Palette) -> String {
        let description = Arc::clone(self.topology.snapshot().description());
        let settings = Settings::new(self.topology.options());
        let changes = changes::changes(&description, &settings, &self.criteria);
        table::changes(palette, &changes)
    }
}

/// Prints why no server was selected.
fn fail<O, R: Write>(error: &SelectionError, console: &mut Console<O, R>) -> io::Result<Exit> {
    let (exit, text) = match error {
        SelectionError::InvalidCriteria(error) => (Exit::CONFIGURATION, error.to_string()),
        error => (Exit::NO_SERVER, format!("{error:#}")),
    };
    let text = table::lines(&format!("error: {text}"));
    write!(console.remarks, "{text}")?;
    Ok(exit)
}

/// Starts a replica set whose members have different tags.
fn simulate() -> Result<Served, ServeError> {
    let blueprint = Blueprint::replica_set(TAGS.len() as u16).configure(|config| {
        for (member, (dc, rack)) in config.members.iter_mut().zip(TAGS) {
            let tags = [("dc", dc), ("rack", rack)];
            member.tags = tags.map(|(name, value)| (name.into(), value.into())).into();
        }
    });
    blueprint.serve()
}
