//! Pages about a deployment over HTTP: metrics for Prometheus, whether it is writable, the
//! primary, and the topology as JSON.

mod arguments;
mod pages;
#[cfg(test)]
mod tests;

use std::{
    future::{Future, pending},
    io::{self, Write},
    pin::pin,
    time::Duration,
};

use futures::{FutureExt, select_biased};
use sdam::Topology;
use sdam_events::metrics::MetricsSink;
use sdam_sim::serve::ReplicaSet;
use tokio::{
    net::TcpListener,
    time::{MissedTickBehavior, interval},
};

pub use self::arguments::Arguments;
use self::pages::{Numbers, Pages};
use crate::{exit::Exit, failure::Failure, http, log::LogSink, target::Target};

/// The interval for aggregating metrics that nothing fetches, so that their memory is bounded.
const UPKEEP: Duration = Duration::from_secs(5);

/// Serves pages about the deployment of `arguments` until `interrupt` is ready. The first line of
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
    for warning in exporter.topology.warnings() {
        writeln!(remarks, "warning: {warning}")?;
    }
    let result = match exporter.listener.local_addr() {
        Ok(address) => writeln!(output, "http://{address}").and_then(|()| output.flush()),
        Err(error) => Err(error),
    };
    let topology = exporter.topology.clone();
    if result.is_ok() {
        exporter.serve(interrupt).await;
    }
    // Also after an error of writing, so that no connection is cut during an exchange.
    topology.close().await;
    result.map(|()| Exit::SUCCESS)
}

/// A topology and the listener of its pages.
struct Exporter {
    topology: Topology,
    pages: Pages,
    listener: TcpListener,
    /// The simulated deployment, if no connection string was given.
    simulated: Option<(ReplicaSet, Duration)>,
}

impl Exporter {
    async fn start(arguments: &Arguments) -> Result<Self, Failure> {
        let (uri, simulated) = if let Some(uri) = arguments.target.uri()? {
            (uri, None)
        } else {
            let set = ReplicaSet::start(3).map_err(Failure::other)?;
            (set.uri().to_owned(), Some(set))
        };
        let runtime = arguments.target.runtime()?;
        let options = Target::options(&uri, &runtime.io).await?;
        let listener = TcpListener::bind(arguments.listen).await.map_err(|error| {
            Failure::other(format!("cannot listen on {}: {error}", arguments.listen))
        })?;
        let numbers =
            Numbers::new(MetricsSink::new(), &runtime.io.clock).map_err(Failure::other)?;
        let mut builder = arguments.target.builder(options).sink(numbers.sink());
        if let Some(log) = LogSink::open(arguments.log.clone()).map_err(Failure::other)? {
            builder = builder.sink(log);
        }
        let topology = builder.start(runtime).map_err(Failure::config)?;
        Ok(Self {
            pages: Pages::new(topology.clone(), numbers),
            topology,
            listener,
            simulated: simulated.map(|set| (set, arguments.failover_period)),
        })
    }

    /// Serves until `stop` is ready and the exchanges that have begun have ended.
    async fn serve(self, stop: impl Future<Output = ()>) {
        let pages = &self.pages;
        let answer = async |request: &_| pages.answer(request);
        let served = http::serve(self.listener, answer, stop);
        let upkeep = every(UPKEEP, || pages.sum_up());
        let show = async {
            match &self.simulated {
                // A set without a primary has no member that could step down.
                Some((set, period)) => every(*period, || drop(set.step_down())).await,
                None => pending().await,
            }
        };
        select_biased! {
            () = pin!(served.fuse()) => {}
            () = pin!(upkeep.fuse()) => {}
            () = pin!(show.fuse()) => {}
        }
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
