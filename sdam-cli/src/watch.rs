//! `watch`: shows the servers of a deployment, and their changes.
//!
//! This module uses only the public interface of `sdam`: event sinks, snapshots and waiting for a
//! state.

#[cfg(feature = "tui")]
mod full;
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "the full screen shows more of it"))]
mod model;
mod screen;
mod tape;
#[cfg(test)]
pub(crate) use self::model::tests as script;
#[cfg(test)]
mod tests;
mod view;

use std::{
    env,
    future::{Future, pending, ready},
    io::{self, IsTerminal, Write},
    iter,
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use clap::Args;
use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{self, UnboundedReceiver, UnboundedSender},
    select_biased,
};
use sdam::{Clock, Runtime, Topology};
use sdam_core::{address::ServerAddress, event::EventKind, options::Options};
use sdam_events::{
    channel::{self, EventStream},
    facts::Facts,
    log::{LogConfig, LogOutput},
    record::Origin,
    sink::Interest,
};
use sdam_select::criteria::Criteria;
use sdam_sim::{Blueprint, Served, serve::ServeError, timing::Timing};

pub(crate) use self::screen::changed_fields;
pub use self::view::{Access, is_known};
use self::{
    model::Model,
    tape::{Recorded, Tape},
    view::View,
};
use crate::{
    cli::{defaults, seconds},
    exit::{Exit, Failure, or_never},
    log::LogSink,
    output::Console,
    target::Target,
    terminal::Palette,
};

/// The text that the help shows after the options.
const AFTER: &str = "\
On a terminal it shows a full screen; `?` lists the keys. Output that is piped, and --plain, are \
lines. The screen records everything from the start into a temporary file of up to 1 GiB, which \
the key w saves and which is removed at the end; --record FILE records into a file of your own.

The topology is known when one server has replied and all others have replied or failed.

Colours are for terminals; NO_COLOR turns them off. The variables MONGODB_LOG_ALL, \
MONGODB_LOG_TOPOLOGY, MONGODB_LOG_PATH and so on configure logging; with log messages on the \
terminal the output is lines.

Exit codes of --once: 0 writable, 1 readable only, 2 neither. Otherwise: 0 left with q or Ctrl-C, \
SIGTERM, or the terminal has gone; of the full screen also 129 SIGHUP, 131 SIGQUIT. In any case: 3 the command line or connection string is wrong, 4 another failure.

Example:
  sdam watch --once 'mongodb://127.0.0.1:27017/?replicaSet=rs0'";

/// The time that the old primary takes to hand over, as if it had to finish operations.
const HAND_OVER: Duration = Duration::from_millis(400);
/// The time limit of each wait, which is more than ten times as long as a wait normally takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Shows the servers of a deployment, and every change, until Ctrl-C or the key q.
///
/// With --demo, it starts a simulated replica set, makes its primary step down after a few seconds,
/// shows the failover, and exits. `sdam` without a subcommand does the same.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = AFTER)]
#[expect(clippy::struct_excessive_bools, reason = "each is a command line flag")]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Print lines even if standard output is a terminal, instead of the full screen.
    #[arg(long)]
    pub plain: bool,
    /// Print one JSON object with its time for each change, instead of lines for people.
    #[arg(long)]
    pub json: bool,
    /// Wait until the topology is known, print one snapshot, and exit.
    #[arg(long)]
    pub once: bool,
    /// Time that --once waits [default: serverSelectionTimeoutMS].
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "once")]
    pub timeout: Option<Duration>,
    /// Record all inputs, events and pool commands of the client into the new file FILE, for
    /// `sdam report`.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// True if the full screen can be used, because standard input and output are terminals. Not
    /// part of the command line.
    #[arg(skip)]
    pub screen: bool,
    /// The pause of a simulated deployment after its start, in which its discovery can be read.
    #[arg(skip = Duration::from_secs(3))]
    pub pause: Duration,
    /// The log configuration, which is not part of the command line.
    #[arg(skip)]
    pub log: LogConfig,
}

impl Arguments {
    /// Returns whether to use the full screen. Log messages on the terminal would corrupt it.
    pub(crate) fn wants_screen(&self) -> bool {
        let logs =
            self.log.interest() != Interest::NONE && !matches!(self.log.output, LogOutput::File(_));
        cfg!(feature = "tui") && self.screen && !(self.plain || self.json || self.once || logs)
    }
}

impl Default for Arguments {
    /// Returns the arguments of an empty command line.
    fn default() -> Self {
        defaults()
    }
}

/// Returns whether the full screen can be used: standard input and output are terminals that can
/// move the cursor.
pub fn has_screen() -> bool {
    if !cfg!(feature = "tui") {
        return false;
    }
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// Watches the deployment in `arguments` until `interrupt` is ready or everything has been shown.
///
/// Must be called within a tokio runtime with I/O and timers.
///
/// # Errors
///
/// If writing to the console fails. Other errors are printed there and set the exit code.
pub async fn run<O: Write, R: Write>(
    arguments: &Arguments,
    mut console: Console<O, R>,
    interrupt: impl Future<Output = ()>,
) -> io::Result<Exit> {
    let mut interrupt = pin!(interrupt.fuse());
    let prepared = select_biased! {
        // Looking up DNS records may take long, so it can be interrupted.
        () = interrupt => return Ok(Exit::SUCCESS),
        prepared = pin!(Session::prepare(arguments).fuse()) => prepared,
    };
    match prepared {
        Ok(session) => session.run(arguments, console, interrupt).await,
        Err(failure) => failure.report(&mut console.remarks),
    }
}

/// The deployment to watch.
struct Session {
    runtime: Runtime,
    options: Options,
    demonstration: Option<Demonstration>,
}

impl Session {
    async fn prepare(arguments: &Arguments) -> Result<Self, Failure> {
        let runtime = arguments.target.runtime()?;
        let Some(uri) = arguments.target.uri()? else {
            let demonstration = Demonstration::start(arguments.pause).map_err(Failure::other)?;
            let mut options = Options::parse(demonstration.set.uri()).map_err(Failure::config)?;
            // Use a single seed, so that the demonstration shows the discovery of the other
            // members.
            options.seeds.truncate(1);
            return Ok(Self { runtime, options, demonstration: Some(demonstration) });
        };
        Ok(Self {
            options: Target::options_within(&uri, &runtime.backend, arguments.timeout).await?,
            runtime,
            demonstration: None,
        })
    }

    async fn run<O: Write, R: Write>(
        self,
        arguments: &Arguments,
        mut console: Console<O, R>,
        interrupt: impl Future<Output = ()>,
    ) -> io::Result<Exit> {
        let (notes, heard) = mpsc::unbounded();
        let started = match Started::new(self.runtime, self.options, arguments, &notes) {
            Ok(started) => started,
            Err(failure) => return failure.report(&mut console.remarks),
        };
        let (topology, recorded) = (started.topology.clone(), started.recorded.clone());
        for warning in topology.warnings() {
            writeln!(console.remarks, "warning: {warning}")?;
        }
        if let Some(demonstration) = &self.demonstration {
            // This cannot fail, because the receiver still exists.
            let _ = notes.unbounded_send(Target::simulation(demonstration.set.uri()));
        }
        let demonstrate = or_never(self.demonstration.as_ref().map(|it| it.run(&topology, notes)));
        let mut remarks = console.remarks;
        let result = if arguments.wants_screen() {
            let source = self.demonstration.as_ref().map_or("LIVE", |_| "DEMO");
            let setup = Setup { started, source, notes: heard, palette: console.palette };
            // After the demonstration, the screen stays until the user quits.
            let show = demonstrate.then(|end| match end {
                Ok(()) => pending().left_future(),
                Err(error) => ready(error).right_future(),
            });
            select_biased! {
                exit = pin!(full::run(setup, interrupt).fuse()) => exit,
                error = pin!(show.fuse()) => Failure::other(error).report(&mut remarks),
            }
        } else {
            let console =
                Console { output: console.output, remarks: &mut remarks, palette: console.palette };
            let mut view = View::new(console, arguments.json, topology.options());
            view.simulated = self.demonstration.is_some();
            if arguments.once {
                once(&topology, heard, &mut view, interrupt).await
            } else {
                let until = async {
                    select_biased! {
                        () = pin!(interrupt.fuse()) => Ok(()),
                        end = pin!(demonstrate.fuse()) => end,
                    }
                };
                follow(&topology, started.events, heard, &mut view, until).await
            }
        };
        // Close the topology even after a write error, so that no command in progress is cut off.
        topology.close().await;
        let lost = recorded.and_then(|recorded| recorded.sink.take_error());
        match (result, lost) {
            (Ok(_), Some(error)) if arguments.record.is_some() => {
                Failure::other(format!("the recording is not complete: {error}"))
                    .report(&mut remarks)
            }
            (result, _) => result,
        }
    }
}

/// Shows a snapshot as soon as the topology is known, or when the timeout expires.
async fn once<O: Write, R: Write>(
    topology: &Topology,
    mut notes: UnboundedReceiver<String>,
    view: &mut View<O, R>,
    interrupt: impl Future<Output = ()>,
) -> io::Result<Exit> {
    show_notes(&mut notes, view)?;
    let timeout = topology.options().server_selection_timeout;
    let known = topology.wait_for(|now| is_known(now.description()).then_some(()), timeout);
    // Keep a selection waiting, because monitors then check unavailable servers twice a second.
    let criteria = Criteria::write();
    let hurry = async {
        let _primary = topology.select(&criteria).await;
        pending().await
    };
    let known = select_biased! {
        known = pin!(known.fuse()) => known,
        () = pin!(interrupt.fuse()) => None,
        never = pin!(hurry.fuse()) => never,
    };
    let description = Arc::clone(topology.snapshot().description());
    if known.is_none() {
        view.warn(&view::missing(&description))?;
    }
    view.snapshot(&description)
}

/// Shows every change, and every note that arrives, until `until` is ready. Then closes the
/// topology.
async fn follow<O: Write, R: Write>(
    topology: &Topology,
    mut events: EventStream,
    mut notes: UnboundedReceiver<String>,
    view: &mut View<O, R>,
    until: impl Future<Output = Result<(), String>>,
) -> io::Result<Exit> {
    let mut until = pin!(until.fuse());
    let end = loop {
        select_biased! {
            end = until => break end,
            note = notes.select_next_some() => view.note(&note)?,
            event = events.select_next_some() => view.event(&event)?,
        }
    };
    topology.close().await;
    let mut rest: Vec<_> = iter::from_fn(|| events.try_next()).collect();
    // The last change results from closing the topology, not from a change of the deployment.
    let is_change = |kind: &EventKind| matches!(kind, EventKind::TopologyDescriptionChanged { .. });
    rest.truncate(rest.iter().rposition(|event| is_change(&event.kind)).unwrap_or_default());
    for event in &rest {
        view.event(event)?;
    }
    show_notes(&mut notes, view)?;
    match end {
        Ok(()) => Ok(Exit::SUCCESS),
        Err(error) => Failure::other(error).report(view.remarks()),
    }
}

/// Shows the notes received so far.
fn show_notes<O: Write, R: Write>(
    notes: &mut UnboundedReceiver<String>,
    view: &mut View<O, R>,
) -> io::Result<()> {
    while let Some(note) = notes.next().now_or_never().flatten() {
        view.note(&note)?;
    }
    Ok(())
}

/// A simulated replica set and its scripted step-down.
#[derive(Debug)]
struct Demonstration {
    set: Served,
    /// The pause after the start, which gives the user time to read about the discovery.
    pause: Duration,
}

impl Demonstration {
    /// Starts a set of three members on loopback.
    fn start(pause: Duration) -> Result<Self, ServeError> {
        let mut timing = Timing::fast();
        timing.hand_over = HAND_OVER;
        let set = Blueprint::replica_set(3).timing(timing).serve()?;
        Ok(Self { set, pause })
    }

    /// Steps the primary down and waits until `topology` knows the new one. Sends a note about each
    /// step.
    async fn run(&self, topology: &Topology, notes: UnboundedSender<String>) -> Result<(), String> {
        // Sending fails if the receiver is closed, and the note is then dropped.
        let say = |note: String| drop(notes.unbounded_send(note));
        let primary = self.primary(topology, None).await?;
        tokio::time::sleep(self.pause).await;
        say(format!("asking the primary {primary} to step down"));
        // The next step does not yield, so let the note be shown first.
        tokio::task::yield_now().await;
        self.set.step_down().map_err(|error| error.to_string())?;
        self.primary(topology, Some(&primary)).await?;
        say("the end; give a connection string to watch a real deployment".to_owned());
        Ok(())
    }

    /// Waits until a primary other than `old` and all other members are known.
    async fn primary(
        &self,
        topology: &Topology,
        old: Option<&ServerAddress>,
    ) -> Result<ServerAddress, String> {
        let settled = topology.wait_for(
            |now| {
                let description = now.description();
                let primary = &description.primary()?.address;
                (is_known(description) && Some(primary) != old).then(|| primary.clone())
            },
            TIMEOUT,
        );
        settled.await.ok_or_else(|| format!("no primary was found within {TIMEOUT:?}"))
    }
}

/// A started topology, its events, and its recording.
struct Started {
    topology: Topology,
    events: EventStream,
    /// The recording that is being written.
    recorded: Option<Recorded>,
    /// The clock that the times of events refer to.
    #[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the full screen reads it"))]
    clock: Arc<dyn Clock>,
}

/// The settings of a full screen, and the data that it shows.
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the full screen reads it"))]
struct Setup {
    started: Started,
    /// The kind of deployment: `LIVE` or `DEMO`.
    source: &'static str,
    /// The steps of the demonstration.
    notes: UnboundedReceiver<String>,
    palette: Palette,
}

impl Started {
    fn new(
        runtime: Runtime,
        options: Options,
        arguments: &Arguments,
        notes: &UnboundedSender<String>,
    ) -> Result<Self, Failure> {
        let clock = Arc::clone(&runtime.backend.clock);
        let origin = Origin::at(clock.now(), SystemTime::now());
        let recorded = match &arguments.record {
            Some(path) => Some(Recorded::begin(path, &options, &origin, notes)?),
            // Without a temporary file, watching is still possible, but the recording cannot be
            // saved.
            None if arguments.wants_screen() => {
                let tape = Tape::temporary(notes.clone()).ok();
                tape.map(|tape| Recorded::on(tape, None, &options, &origin)).transpose()?
            }
            None => None,
        };
        let (sink, events) = channel::unbounded();
        let interest = if arguments.wants_screen() { Model::INTEREST } else { Facts::INTEREST };
        let builder = arguments.target.builder(options);
        let mut builder = builder.sink(sink.interested_in(interest));
        if let Some(recorded) = &recorded {
            builder = builder.sink(Arc::clone(&recorded.sink));
        }
        if let Some(log) = LogSink::open(arguments.log.clone()).map_err(Failure::other)? {
            builder = builder.sink(log);
        }
        let topology = builder.start(runtime).map_err(Failure::config)?;
        Ok(Self { topology, events, recorded, clock })
    }
}

/// Replaces the full screen if the feature `tui` is disabled.
#[cfg(not(feature = "tui"))]
mod full {
    use std::{
        future::{Future, ready},
        io,
    };

    use super::Setup;
    use crate::exit::Exit;

    /// Fails, because no command line can request the full screen in this build.
    pub(super) fn run(
        _: Setup,
        _: impl Future<Output = ()>,
    ) -> impl Future<Output = io::Result<Exit>> {
        ready(Err(io::Error::other("this program was built without the feature tui")))
    }
}
