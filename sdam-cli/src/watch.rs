//! `watch`: shows the servers of a deployment, and their changes.
//!
//! This module uses only the public interface of `sdam`: event sinks, snapshots and waiting for a
//! state.

mod arguments;
mod demonstration;
#[cfg_attr(not(feature = "tui"), path = "watch/without_full.rs")]
mod full;
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "the full screen shows more of it"))]
mod model;
mod screen;
mod started;
mod tape;
#[cfg(test)]
mod tests;
mod verdict;
mod view;

use std::{
    env,
    future::{Future, pending, ready},
    io::{self, IsTerminal, Write},
    iter,
    pin::pin,
    sync::Arc,
};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{self, UnboundedReceiver},
    select_biased,
};
use sdam::{Runtime, Topology};
use sdam_core::{event::EventKind, options::Options};
use sdam_events::channel::EventStream;
use sdam_select::criteria::Criteria;

pub(crate) use self::screen::changed_fields;
pub use self::{
    arguments::Arguments,
    verdict::{Access, is_known},
};
use self::{demonstration::Demonstration, started::Started, view::View};
use crate::{console::Console, exit::Exit, failure::Failure, never::or_never, target::Target};

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
            let mut options = Options::parse(demonstration.uri()).map_err(Failure::config)?;
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
            let _ = notes.unbounded_send(Target::simulation(demonstration.uri()));
        }
        let demonstrate = or_never(self.demonstration.as_ref().map(|it| it.run(&topology, notes)));
        let mut remarks = console.remarks;
        let result = if arguments.wants_screen() {
            let source = self.demonstration.as_ref().map_or("LIVE", |_| "DEMO");
            let setup = started.screen(source, console.palette, heard);
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
        view.warn(&verdict::missing(&description))?;
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
