//! Pages about deployments over HTTP: metrics for Prometheus, whether it is writable, the
//! primary, and the topology as JSON.

mod arguments;
mod numbers;
mod pages;
mod targets;
#[cfg(test)]
mod tests;

use std::{
    future::{Future, pending},
    io::{self, Write},
    pin::pin,
    time::Duration,
};

use futures::{FutureExt, future::join_all, select_biased};
use sdam::Options;
use sdam_sim::serve::ReplicaSet;
use tokio::{
    net::TcpListener,
    time::{MissedTickBehavior, interval},
};

pub use self::arguments::Arguments;
use self::{
    numbers::Numbers,
    pages::{Deployment, Pages},
};
use crate::{exit::Exit, failure::Failure, http, log::LogSink, target::Target};

/// The interval for aggregating metrics that nothing fetches, so that their memory is bounded.
const UPKEEP: Duration = Duration::from_secs(5);

/// Serves pages about the deployments of `arguments` until `interrupt` is ready. The first line of
/// `output` is their address; errors and remarks go to `remarks`.
///
/// Has to be called in the context of a tokio runtime with I/O and timers.
///
/// # Errors
///
/// Only those of writing; other errors go to `remarks` and the exit code.
pub async fn run(
    arguments: &Arguments,
    mut output: impl Write,
    mut remarks: impl Write,
    interrupt: impl Future<Output = ()>,
) -> io::Result<Exit> {
    let exporter = match Exporter::start(arguments).await {
        Ok(exporter) => exporter,
        Err(failure) => return failure.report(&mut remarks),
    };
    for deployment in &exporter.pages.0 {
        let name = deployment
            .name()
            .map_or(String::new(), |name| format!("{name}: "));
        for warning in deployment.topology().warnings() {
            writeln!(remarks, "warning: {name}{warning}")?;
        }
    }
    let result = match exporter.listener.local_addr() {
        Ok(address) => writeln!(output, "http://{address}").and_then(|()| output.flush()),
        Err(error) => Err(error),
    };
    let pages = &exporter.pages;
    if result.is_ok() {
        serve(pages, exporter.listener, exporter.simulated, interrupt).await;
    }
    // Also after an error of writing, so that no connection is cut during an exchange.
    join_all(
        pages
            .0
            .iter()
            .map(|deployment| deployment.topology().close()),
    )
    .await;
    result.map(|()| Exit::SUCCESS)
}

/// Topologies and the listener of their pages.
struct Exporter {
    pages: Pages,
    listener: TcpListener,
    /// The simulated deployment, if no other was given.
    simulated: Option<(ReplicaSet, Duration)>,
}

impl Exporter {
    async fn start(arguments: &Arguments) -> Result<Self, Failure> {
        let mut simulated = None;
        let targets = if let Some(path) = &arguments.targets {
            let named = targets::read(path)?.into_iter();
            named.map(|(name, uri)| (Some(name), uri)).collect()
        } else if let Some(uri) = arguments.target.uri()? {
            vec![(None, uri)]
        } else {
            let set = ReplicaSet::start(3).map_err(Failure::other)?;
            let uri = set.uri().to_owned();
            simulated = Some((set, arguments.failover_period));
            vec![(None, uri)]
        };
        let listener = TcpListener::bind(arguments.listen).await;
        let listener =
            listener.map_err(|error| Failure::listen("--listen", arguments.listen, &error))?;
        // The strings are checked before the first topology connects.
        let runtime = arguments.target.runtime()?;
        let mut parsed = Vec::new();
        for (name, uri) in targets {
            let options = Target::options(&uri, &runtime.io).await;
            let options =
                options.map_err(|failure| failure.of(place(arguments, name.as_deref())))?;
            parsed.push((name, options));
        }
        let mut deployments = Vec::new();
        for (name, options) in parsed {
            deployments.push(deployment(arguments, name, options)?);
        }
        Ok(Self {
            pages: Pages(deployments),
            listener,
            simulated,
        })
    }
}

/// Starts the topology of a deployment, with metrics of its own.
fn deployment(
    arguments: &Arguments,
    name: Option<String>,
    options: Options,
) -> Result<Deployment, Failure> {
    let runtime = arguments.target.runtime()?;
    let numbers = Numbers::new(name.as_deref(), &runtime.io.clock).map_err(Failure::other)?;
    let mut builder = arguments.target.builder(options).sink(numbers.sink());
    if let Some(log) = LogSink::open(arguments.log.clone()).map_err(Failure::other)? {
        builder = builder.sink(log);
    }
    let topology = builder.start(runtime);
    let topology =
        topology.map_err(|error| Failure::config(error).of(place(arguments, name.as_deref())))?;
    Ok(Deployment::new(name, topology, numbers))
}

/// Names a deployment of the file of targets, for messages.
fn place(arguments: &Arguments, name: Option<&str>) -> Option<String> {
    let file = arguments.targets.as_ref()?.display();
    name.map(|name| format!("--targets {file}: {name}"))
}

/// Serves until `stop` is ready and the exchanges that have begun have ended.
async fn serve(
    pages: &Pages,
    listener: TcpListener,
    simulated: Option<(ReplicaSet, Duration)>,
    stop: impl Future<Output = ()>,
) {
    let answer = async |request: &_| pages.answer(request).await;
    let served = http::serve(listener, answer, stop);
    let upkeep = every(UPKEEP, || pages.sum_up());
    let show = async {
        match simulated {
            // A set without a primary has no member that could step down.
            Some((set, period)) => every(period, || drop(set.step_down())).await,
            None => pending().await,
        }
    };
    select_biased! {
        () = pin!(served.fuse()) => {}
        () = pin!(upkeep.fuse()) => {}
        () = pin!(show.fuse()) => {}
    }
}

/// Runs `act` repeatedly, for the first time after one `period`.
async fn every(period: Duration, act: impl Fn()) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        act();
    }
}
