//! Serves pages about deployments over HTTP: metrics for Prometheus, the health, the primary, the
//! roles of members for load balancers, and the topology as JSON.

mod arguments;
mod deployment;
mod fleet;
mod numbers;
mod pages;
mod reload;
mod targets;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    fmt::Display,
    future::Future,
    io::{self, Write},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use futures::{
    FutureExt,
    channel::mpsc::{UnboundedReceiver, unbounded},
    select_biased,
};
use sdam_events::sink::EventSink;
use sdam_sim::{Blueprint, Served};
use tokio::{
    net::TcpListener,
    time::{MissedTickBehavior, interval},
};

pub use self::arguments::Arguments;
use self::{
    deployment::Deployment,
    fleet::{Fleet, SKIPPED},
    reload::{Outcomes, Source},
    targets::{Named, Targets},
};
use crate::{exit::Exit, failure::Failure, http, log::LogSink, never::or_never};

/// Serves pages about the deployments of `arguments` until `interrupt` is ready. The first line of
/// `output` is the address of the pages; errors and remarks go to `remarks`.
///
/// A deployment whose hosts cannot be looked up is reported as down, and the look-up is repeated.
///
/// Must be called within a tokio runtime with I/O and timers.
///
/// # Errors
///
/// Returns an error only if writing to `output` fails. Other errors are printed to `remarks` and
/// determine the exit code.
pub async fn run(
    arguments: &Arguments,
    mut output: impl Write,
    mut remarks: impl Write,
    interrupt: impl Future<Output = ()>,
) -> io::Result<Exit> {
    let exporter = match Exporter::bind(arguments).await {
        Ok(exporter) => exporter,
        Err(failure) => return failure.report(&mut remarks),
    };
    let mut interrupt = pin!(interrupt.fuse());
    // Poll `interrupt` before printing: it notices signals only after its first poll, and a signal
    // may arrive as soon as the first line is printed.
    if interrupt.as_mut().now_or_never().is_some() {
        return Ok(Exit::SUCCESS);
    }
    let address = exporter.listener.local_addr()?;
    match exporter.simulated {
        None => writeln!(output, "http://{address}"),
        Some(_) => writeln!(output, "http://{address} (simulated)"),
    }?;
    output.flush()?;
    ready();
    let interrupt = interrupt.inspect(|()| stopping());
    let remarks = RefCell::new(remarks);
    let remark = |words: &dyn Display| {
        // Ignore the error, because monitoring must continue even if remarks cannot be written.
        let _ = writeln!(remarks.borrow_mut(), "{words}");
    };
    exporter.serve(arguments, remark, interrupt).await;
    Ok(Exit::SUCCESS)
}

/// The deployments and the listener for their pages.
struct Exporter {
    fleet: Fleet,
    /// Receives the deployments to watch.
    started: UnboundedReceiver<Rc<Deployment>>,
    /// The file of `--targets`; `None` if it can be read only once.
    source: Option<Source>,
    listener: TcpListener,
    /// The simulated deployment, if one was requested.
    simulated: Option<Served>,
    /// The reasons why some deployments cannot be watched.
    invalid: Vec<String>,
}

impl Exporter {
    /// Checks the arguments and binds the port. No connection to a deployment is opened before
    /// [`serve`](Self::serve).
    async fn bind(arguments: &Arguments) -> Result<Self, Failure> {
        let runtime = arguments.target.runtime()?;
        let clock = Arc::clone(&runtime.backend.clock);
        let (targets, source, simulated) = if let Some(path) = &arguments.targets {
            let (targets, source) = Source::open(path, &clock).map_err(Failure::config)?;
            (targets, source, None)
        } else {
            let (uri, simulated) =
                arguments.target.deployment(|| Blueprint::replica_set(3).serve())?;
            let only = Named::only(arguments.name.clone(), uri, simulated.is_some());
            (Targets { named: vec![only], ..Targets::default() }, None, simulated)
        };
        let log = LogSink::open(arguments.log.clone()).map_err(Failure::other)?;
        let log = log.map(|log| Arc::new(log) as Arc<dyn EventSink>);
        let (start, started) = unbounded();
        let mut fleet = Fleet {
            target: arguments.target.clone(),
            runtime,
            log,
            outcomes: None,
            members: RefCell::default(),
            start,
        };
        let invalid = fleet.change_to(targets).map_err(Failure::config)?.invalid;
        fleet.outcomes = source.as_ref().map(|_| Outcomes::new(invalid.len(), &*clock));
        let listener = TcpListener::bind(arguments.listen).await;
        let listener =
            listener.map_err(|error| Failure::listen("--listen", arguments.listen, &error))?;
        Ok(Self { fleet, started, source, listener, simulated, invalid })
    }

    /// Watches the deployments and serves their pages until `stop` is ready. Then finishes the
    /// exchanges that are in progress.
    async fn serve(
        self,
        arguments: &Arguments,
        remark: impl Fn(&dyn Display),
        stop: impl Future<Output = ()>,
    ) {
        let Self { fleet, started, source, listener, simulated, invalid } = self;
        for error in &invalid {
            remark(&format_args!("warning: {error}; {SKIPPED}"));
        }
        let answer = async |request: &_| pages::answer(&fleet, request);
        let served = http::serve(listener, answer, stop);
        // Stepping down fails while the set has no primary. Ignore that error.
        let show =
            simulated.map(|set| every(arguments.failover_period, move || drop(set.step_down())));
        select_biased! {
            () = pin!(fleet.run(started, source, invalid, &remark).fuse()) => {}
            () = pin!(served.fuse()) => {}
            () = pin!(or_never(show).fuse()) => {}
        }
        fleet.close().await;
    }
}

/// Tells the supervisor of this process, such as systemd (`Type=notify`), that clients are served. A
/// supervisor sets the variable `NOTIFY_SOCKET`; without it, this does nothing.
fn ready() {
    #[cfg(target_os = "linux")]
    notify(sd_notify::NotifyState::Ready);
}

/// Tells the supervisor that the program will end once it has served its current clients.
fn stopping() {
    #[cfg(target_os = "linux")]
    notify(sd_notify::NotifyState::Stopping);
}

#[cfg(target_os = "linux")]
fn notify(state: sd_notify::NotifyState<'_>) {
    // Errors are ignored, because the supervisor notices that the notification is missing.
    let _ = sd_notify::notify(&[state]);
}

/// Calls `act` at the end of each `period`, forever.
async fn every(period: Duration, act: impl Fn()) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        act();
    }
}
