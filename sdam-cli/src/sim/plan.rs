//! The plan of a simulation, and its execution.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    pin::pin,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use futures::{
    FutureExt,
    channel::mpsc::{self, UnboundedSender},
    select_biased,
};
use sdam::{TopologyBuilder, client::ClientBuilder};
use sdam_core::{options::Options, rng::Rng, time::Instant};
use sdam_events::{
    channel,
    facts::Facts,
    record::{Origin, RecordSink},
};
use sdam_sim::{Blueprint, Deployment, Sim};

use super::{
    Arguments, application,
    arguments::DetectorName,
    observer::Observer,
    outcome::{BEGIN, Outcome, Taken},
};
use crate::{
    console::Console,
    failure::Failure,
    never::or_never,
    recording::{self, cannot_record},
    simulated::{Command, Script, describe},
    watch::{View, follow},
};

/// The plan of a simulation.
pub(super) struct Plan {
    blueprint: Blueprint,
    is_replica_set: bool,
    script: Script,
    /// The default scenario, if the user gave none.
    default: Option<String>,
    options: Options,
    /// The time for which the simulation continues after the last step.
    rest: Duration,
    /// The pause between the writes of an application; `None` if there is no application.
    pause: Option<Duration>,
}

/// The output settings of a simulation.
pub(super) struct Show<'s, O, R> {
    pub(super) console: Console<O, R>,
    pub(super) json: bool,
    pub(super) record: Option<&'s Path>,
}

impl Plan {
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let simulated = &arguments.simulated;
        let (script, default) = if let Some(script) = simulated.script()? {
            (script, None)
        } else {
            let victim = if simulated.is_replica_set() { "primary" } else { "0" };
            let text = format!("15s kill {victim}\n45s restart 0\n");
            let script = Script::parse("the default scenario".to_owned(), &text)?;
            (script, Some(text))
        };
        let blueprint = simulated.blueprint();
        let blueprint = blueprint.epoch_millis(BEGIN.as_millis() as i64);
        // The connection string does not depend on the seed.
        let deployment = Deployment::start(Instant::EPOCH, &blueprint, Rng::new(0));
        let uri = with_options(deployment.uri(), &arguments.options);
        let mut options = Options::parse(&uri).map_err(Failure::config)?;
        options.detector = arguments.detector.map(DetectorName::detector);
        Ok(Self {
            blueprint,
            is_replica_set: simulated.is_replica_set(),
            script,
            default,
            options,
            rest: arguments.rest,
            pause: arguments.write_every,
        })
    }

    /// Prints warnings, and the defaults that are used.
    pub(super) fn announce(&self, remarks: &mut impl Write) -> io::Result<()> {
        for warning in self.options.multi_threaded_warnings() {
            writeln!(remarks, "warning: {warning}")?;
        }
        if let Some(text) = &self.default {
            write!(remarks, "note: without --scenario FILE it is this one:\n{text}")?;
        }
        Ok(())
    }

    /// Returns the kind of server that writes need.
    pub(super) fn wanted(&self) -> &'static str {
        if self.is_replica_set { "primary" } else { "writable server" }
    }

    /// Simulates the scenario with `seed`. Invalid options, or a failure to record, lead to the
    /// inner error.
    pub(super) fn simulate<O: Write, R: Write>(
        &self,
        seed: u64,
        show: Show<'_, O, R>,
    ) -> io::Result<Result<Outcome, Failure>> {
        let sim = Sim::new(seed, &self.blueprint);
        let clock = sim.runtime().backend.clock;
        let wall = Origin::at(Instant::EPOCH, UNIX_EPOCH + BEGIN);
        let recorder = match show.record {
            Some(path) => match record(path, &self.options, &wall) {
                Ok(recorder) => Some((path, recorder)),
                Err(failure) => return Ok(Err(failure)),
            },
            None => None,
        };
        let observer = Arc::new(Observer::new(&self.options));
        let (sink, events) = channel::unbounded();
        let mut builder = TopologyBuilder::new(self.options.clone())
            .sink(sink.interested_in(Facts::INTEREST))
            .sink(Arc::clone(&observer));
        if let Some((_, recorder)) = &recorder {
            builder = builder.sink(Arc::clone(recorder));
        }
        let client = match ClientBuilder::new(builder).start(sim.runtime()) {
            Ok(client) => client,
            Err(error) => return Ok(Err(Failure::config(error))),
        };
        let mut view = View::new(show.console, show.json, &self.options);
        (view.wall, view.clock) = (Some(wall), Some(Arc::clone(&clock)));
        let (notes, heard) = mpsc::unbounded();
        let (taken, writes) = (RefCell::default(), RefCell::default());
        let end = Cell::new(Instant::EPOCH);
        let until = async {
            let write =
                self.pause.map(|pause| application::write(&client, &*clock, pause, &writes));
            select_biased! {
                () = pin!(self.play(&sim, &notes, &taken).fuse()) => {}
                () = pin!(or_never(write).fuse()) => {}
            }
            end.set(sim.now());
            Ok(())
        };
        // Ignore the exit code: it never reports a failure, because `until` never fails.
        let _ = sim.block_on(follow(client.topology(), events, heard, &mut view, until))?;
        if let Some((path, recorder)) = recorder
            && let Some(error) = recorder.take_error()
        {
            return Ok(Err(cannot_record(path, &error)));
        }
        Ok(Ok(Outcome {
            seed,
            end: end.get(),
            client: observer.seen(),
            steps: taken.into_inner(),
            writes: self.pause.map(|_| writes.into_inner().at_the_end(end.get())),
        }))
    }

    /// Applies each step at its time and sends a note about it; then waits for the time `rest`.
    async fn play(&self, sim: &Sim, notes: &UnboundedSender<String>, taken: &RefCell<Vec<Taken>>) {
        // If the receiver is closed, the note is dropped.
        let say = |note: String| drop(notes.unbounded_send(note));
        let clock = sim.runtime().backend.clock;
        let start = clock.now();
        for line in &self.script.lines {
            clock.sleep_until(start + line.at).await;
            match &line.command {
                Command::Step(step) => {
                    let error = step.apply(sim).err();
                    let words = step.to_string();
                    say(match &error {
                        None => words.clone(),
                        Some(error) => format!("{words}: not possible, {error}"),
                    });
                    let status = sim.status();
                    let primary = status.primary().filter(|primary| primary.answers);
                    taken.borrow_mut().push(Taken {
                        at: clock.now(),
                        place: self.script.place(line.number),
                        words,
                        error,
                        primary: primary.map(|primary| primary.address.clone()),
                    });
                }
                Command::Status => describe(&sim.status()).for_each(say),
                Command::Sleep(_) | Command::Help => {}
                Command::Quit => return,
            }
        }
        clock.sleep_until(start + self.script.duration() + self.rest).await;
    }
}

/// Adds options to a connection string.
fn with_options(mut uri: String, options: &str) -> String {
    let options = options.trim_start_matches(['?', '&']);
    if !options.is_empty() {
        uri.push(if uri.contains('?') { '&' } else { '?' });
        uri.push_str(options);
    }
    uri
}

type Recorder = Arc<RecordSink<BufWriter<File>>>;

fn record(path: &Path, options: &Options, wall: &Origin) -> Result<Recorder, Failure> {
    let file = BufWriter::new(recording::create(path)?);
    let sink = RecordSink::with_origin(file, options, wall);
    sink.map(Arc::new).map_err(|error| cannot_record(path, &error))
}
