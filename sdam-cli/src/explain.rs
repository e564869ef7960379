//! `explain`: selects a server for an operation, and explains why the other servers were rejected.

#[cfg(test)]
mod tests;

use std::{
    fmt::Write as _,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use sdam::{SelectionError, Topology};
use sdam_core::{
    address::ServerAddress,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::ServerType,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::{
    criteria::{Criteria, Operation},
    diagnose::{Diagnosis, diagnose},
    explain::{ExplainedServer, Explanation, Rejection, Verdict, explain},
    settings::Settings,
};
use sdam_sim::{
    Blueprint,
    serve::{ServeError, Served},
};

use crate::{
    cli::{seconds, some_seconds},
    exit::{Exit, Failure},
    output::Console,
    target::Target,
    terminal::{Palette, Tone, WIDTH, columns, wrap},
    watch::is_known,
};

/// The text that the help shows after the options.
const AFTER: &str = "\
The defaults are those of the connection string.

Exit codes: 0 a server was selected, 2 none was or it refuses the operation, 3 the command line or \
the connection string is wrong, 4 another failure.

Example:
  sdam explain --read secondary --tags dc:ny --tags '' \\
    'mongodb://127.0.0.1:27017/?replicaSet=rs0'";

/// Selects a server for an operation, and explains the result for each of the others.
///
/// The members of the replica set that --demo simulates have the tags dc:ny,rack:1 and dc:ny,rack:2
/// and dc:la,rack:1.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Explain an operation that writes; the default is to read.
    #[arg(long, conflicts_with_all = ["read", "tags", "max_staleness"])]
    pub write: bool,
    /// The mode of the read preference.
    #[arg(long, visible_alias = "mode", value_name = "MODE", value_parser = mode(), ignore_case = true)]
    pub read: Option<ReadMode>,
    /// A tag set; give several in order of preference, with '' as the last one to accept any
    /// member.
    #[arg(long, value_name = "NAME:VALUE,...", value_parser = tags)]
    pub tags: Vec<TagSet>,
    /// Maximum lag of members.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub max_staleness: Option<Duration>,
    /// Time limit [default: serverSelectionTimeoutMS].
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    pub timeout: Option<Duration>,
}

impl Arguments {
    /// Returns the read preference that results from these arguments and from `default`, the read
    /// preference of the connection string.
    pub fn preference(&self, default: &ReadPreference) -> ReadPreference {
        let mut preference = default.clone();
        preference.mode = self.read.unwrap_or(preference.mode);
        if !self.tags.is_empty() {
            preference.tag_sets.clone_from(&self.tags);
        }
        preference.max_staleness = self.max_staleness.or(preference.max_staleness);
        preference
    }
}

/// The additional time to wait for answers from the other servers once a suitable server is known.
const EXTRA_TIME: Duration = Duration::from_secs(1);

/// The tags of the simulated members.
const TAGS: [(&str, &str); 3] = [("ny", "1"), ("ny", "2"), ("la", "1")];

/// The width of the mark before a server's address.
const MARK: usize = 2;
/// The width of the type column, enough for `RSSecondary`, the longest type that can be selected,
/// and for most other types.
const TYPE: usize = 11;
/// The width of the round-trip time column, enough for `999.99 ms`.
const RTT: usize = 9;
/// The minimum width of a verdict beside the other columns.
const VERDICT: usize = 25;

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
            let text = lines(&String::from_utf8_lossy(&text));
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
        let table = explanation_text(console.palette, &description, &explanation, Some(chosen));
        let notes = diagnose(&description, &explanation);
        let notes = diagnoses_text(console.palette, &notes);
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
        let changes = changes(&description, &settings, &self.criteria);
        changes_text(palette, &changes)
    }
}

/// Prints why no server was selected.
fn fail<O, R: Write>(error: &SelectionError, console: &mut Console<O, R>) -> io::Result<Exit> {
    let (exit, text) = match error {
        SelectionError::InvalidCriteria(error) => (Exit::CONFIGURATION, error.to_string()),
        error => (Exit::NO_SERVER, format!("{error:#}")),
    };
    let text = lines(&format!("error: {text}"));
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

/// Returns a parser for read preference modes.
fn mode() -> impl TypedValueParser<Value = ReadMode> {
    PossibleValuesParser::new(ReadMode::ALL.iter().map(|mode| mode.as_str()))
        .try_map(|name| ReadMode::parse(&name).ok_or("there is no such mode"))
}

/// Parses a tag set.
fn tags(text: &str) -> Result<TagSet, &'static str> {
    let tags = text.split(',').filter(|_| !text.is_empty());
    tags.map(|tag| tag.split_once(':')).collect::<Option<TagSet>>().ok_or(
        "a tag is a name, a colon and a value; write for example `--tags dc:ny,rack:1`, or \
             `--tags \'\'` for any member",
    )
}

/// Formats the criteria, the selected server, and the rejected servers with the reasons for their
/// rejection.
fn explanation_text(
    palette: Palette,
    topology: &TopologyDescription,
    explanation: &Explanation,
    chosen: Option<&ServerAddress>,
) -> String {
    let mut text = String::new();
    let headline = format!("{} on {}", explanation.operation, explanation.topology_type);
    paragraph(&mut text, palette, Tone::Strong, &headline, 0);
    if let Some(refusal) = &explanation.refusal {
        paragraph(&mut text, palette, Tone::Bad, &refusal.to_string(), MARK);
    }
    let lengths = explanation.servers.iter().map(|server| columns(server.address.as_str()));
    let width = lengths.max().unwrap_or_default();
    for server in &explanation.servers {
        let is_chosen = Some(&server.address) == chosen;
        let rtt = topology.server(&server.address).and_then(|known| known.rtt);
        let row = format!(
            "{:MARK$}{:width$}  {:TYPE$}  {:>RTT$}  ",
            if is_chosen { ">" } else { "" },
            server.address.as_str(),
            server.server_type,
            rtt.map(|rtt| format!("{:.2} ms", rtt.average.as_secs_f64() * 1e3)).unwrap_or_default(),
        );
        let (tone, verdict) = verdict(server, is_chosen);
        let indent = columns(&row);
        // Put a long address on its own line.
        let (indent, mut row) = if indent + VERDICT <= WIDTH {
            (indent, row)
        } else {
            (MARK + 2, format!("{row}\n{:1$}", "", MARK + 2))
        };
        for line in wrap(&verdict, indent) {
            let _ = writeln!(text, "{row}{}", palette.paint(tone, line));
            row = " ".repeat(indent);
        }
    }
    text
}

fn verdict(server: &ExplainedServer, is_chosen: bool) -> (Tone, String) {
    match (&server.verdict, &server.error) {
        (Verdict::Eligible { .. }, _) if server.refuses => {
            (Tone::Bad, "is selected, as the connection is direct, but refuses this".to_owned())
        }
        (Verdict::Eligible { .. }, _) if is_chosen => (Tone::Good, "is selected".to_owned()),
        (Verdict::Eligible { .. }, _) => (Tone::Fair, "is in the latency window".to_owned()),
        (_, Some(error)) if !server.server_type.is_available() => {
            (Tone::Bad, format!("is not available: {error:#}"))
        }
        (_, None) if !server.server_type.is_available() => {
            (Tone::Doubtful, "has not answered yet".to_owned())
        }
        (Verdict::Rejected(rejection), _) => (Tone::Faint, rejection.to_string()),
        (_, _) => (Tone::Faint, "was not considered".to_owned()),
    }
}

/// Formats the probable problems of the deployment, which may exist even if a server was selected.
fn diagnoses_text(palette: Palette, diagnoses: &[Diagnosis]) -> String {
    let mut text = String::new();
    for diagnosis in diagnoses {
        let words = format!("note: {diagnosis}; {}", diagnosis.remedy());
        paragraph(&mut text, palette, Tone::Doubtful, &words, 0);
    }
    text
}

/// Formats the changes that would make the rejected servers eligible.
fn changes_text(palette: Palette, changes: &[(ServerAddress, String)]) -> String {
    let mut text = String::new();
    if !changes.is_empty() {
        paragraph(&mut text, palette, Tone::Strong, "what would include the others", 0);
    }
    for (address, change) in changes {
        let words = format!("{address}: {change}");
        paragraph(&mut text, palette, Tone::Normal, &words, MARK);
    }
    text
}

/// Wraps lines that may be longer than the screen, keeping their indentation.
fn lines(lines: &str) -> String {
    let mut text = String::new();
    for line in lines.lines() {
        let own = columns(line) - columns(line.trim_start());
        paragraph(&mut text, Palette::Plain, Tone::Normal, line, own);
    }
    text
}

fn paragraph(text: &mut String, palette: Palette, tone: Tone, words: &str, indent: usize) {
    // Continuation lines are indented further.
    for (index, line) in wrap(words, indent + 2).into_iter().enumerate() {
        let indent = indent + if index > 0 { 2 } else { 0 };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:indent$}{}", "", palette.paint(tone, line));
    }
}

/// The maximum number of steps. Each step changes the mode, staleness, tags or latency, except for
/// the last step, which only checks the result.
const STEPS: usize = 5;

/// Returns the change that would make each available but rejected server eligible, if one exists.
fn changes(
    topology: &TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
) -> Vec<(ServerAddress, String)> {
    let explanation = explain(topology, settings, criteria);
    let rejected = explanation.servers.iter().filter(|server| {
        server.server_type.is_available() && matches!(server.verdict, Verdict::Rejected(_))
    });
    rejected
        .filter_map(|server| {
            let change = match explanation.operation.read_preference() {
                Some(preference) => {
                    let preference = ReadPreference::clone(preference);
                    let (settings, words) = (settings.clone(), Vec::new());
                    let draft = Draft { preference, settings, words };
                    draft.for_server(topology, &server.address)?
                }
                None if server.server_type == ServerType::RsSecondary => {
                    "writes need it to be elected (rs.stepDown() at the primary)".to_owned()
                }
                None => return None,
            };
            Some((server.address.clone(), change))
        })
        .collect()
}

/// Criteria and settings that are changed step by step.
struct Draft {
    preference: ReadPreference,
    settings: Settings,
    words: Vec<String>,
}

impl Draft {
    /// Changes the criteria and settings until `server` is eligible, and describes the changes.
    /// Returns `None` if no change makes the server eligible.
    fn for_server(
        mut self,
        topology: &TopologyDescription,
        server: &ServerAddress,
    ) -> Option<String> {
        for _ in 0..STEPS {
            let criteria = Criteria::read(self.preference.clone()).ok()?;
            let explanation = explain(topology, &self.settings, &criteria);
            let mut servers = explanation.servers.iter();
            let own = servers.find(|own| own.address == *server)?;
            match &own.verdict {
                Verdict::Eligible { .. } => return Some(self.words.join(", and ")),
                Verdict::Rejected(rejection) => self.relax(rejection)?,
                _ => return None,
            }
        }
        None
    }

    /// Changes the criterion or setting that caused `rejection`. Returns `None` if there is nothing
    /// left to change.
    fn relax(&mut self, rejection: &Rejection) -> Option<()> {
        let words = match rejection {
            Rejection::Type { .. } | Rejection::NotPreferred { .. } => {
                // `Nearest` is the mode that accepts the most servers.
                if self.preference.mode == ReadMode::Nearest {
                    return None;
                }
                self.preference.mode = ReadMode::Nearest;
                "--read nearest".to_owned()
            }
            Rejection::Stale { staleness, .. } => {
                let limit = Duration::from_secs(staleness.as_secs() + 1);
                self.preference.max_staleness = Some(limit);
                format!("--max-staleness {}", limit.as_secs())
            }
            Rejection::StalenessUnknown { .. } => {
                self.preference.max_staleness = None;
                "no --max-staleness".to_owned()
            }
            Rejection::Tags { own, .. } => {
                let tags = self.similar(own);
                let words = format!("--tags {}", written(&tags));
                self.preference.tag_sets = vec![tags];
                words
            }
            Rejection::Latency { average: Some(average), fastest, .. } => {
                let needed = average.saturating_sub(*fastest).as_millis() + 1;
                let needed = u64::try_from(needed).ok()?;
                self.settings.local_threshold = Duration::from_millis(needed);
                format!("localThresholdMS={needed}")
            }
            _ => return None,
        };
        self.words.push(words);
        Some(())
    }

    /// Returns the server's tags whose names appear in the criteria.
    fn similar(&self, own: &TagSet) -> TagSet {
        let wanted = self.preference.tag_sets.iter().flat_map(TagSet::iter);
        let names: Vec<_> = wanted.map(|(name, _)| name).collect();
        own.iter().filter(|(name, _)| names.contains(name)).collect()
    }
}

/// Formats tags in the syntax of the command line.
fn written(tags: &TagSet) -> String {
    if tags.is_empty() {
        return "''".to_owned();
    }
    let tags = tags.iter().map(|(name, value)| format!("{name}:{value}"));
    tags.collect::<Vec<_>>().join(",")
}
