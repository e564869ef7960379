//! Serves pages about deployments over HTTP: metrics for Prometheus, the health, the primary, the
//! roles of members for load balancers, and the topology as JSON.

mod fleet;
mod numbers;
mod pages;
mod targets;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    fmt::Display,
    future::Future,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use futures::{
    FutureExt,
    channel::mpsc::{UnboundedReceiver, unbounded},
    select_biased,
};
use sdam_events::{log::LogConfig, sink::EventSink};
use sdam_sim::{Blueprint, Served};
use tokio::{
    net::TcpListener,
    time::{MissedTickBehavior, interval},
};

use self::{
    fleet::{Exported, Fleet, SKIPPED},
    targets::{Named, Outcomes, Source, Targets, check_name},
};
use crate::{
    cli::{defaults, listen_address},
    exit::{Exit, Failure, or_never},
    http,
    log::LogSink,
    target::Target,
};

/// The pages, for the help and for the page `/`.
const PAGES: &str = "\
/metrics       metrics, in the text format of Prometheus
/probe         the same of one deployment
/topology      the description of the topology, as JSON
/healthz       200 if the deployment can be written to, else 503 and the reason
/healthz?read=MODE&tags=NAME:VALUE,...&maxLag=SECONDS
               200 if it can be read with this read preference: primary,
               primaryPreferred, secondary, secondaryPreferred or nearest;
               from a server with these tags, which lags no more than this
/primary       the address of the primary, or 503
/member?server=HOST:PORT&is=ROLE
               200 if this member is primary, secondary or readable, else 503
               and the reason; for the health checks of HAProxy
/-/healthy     200 while this program runs
";

/// The text that the help shows after the pages.
const AFTER: &str = "
The role is primary, secondary, or readable: any server with data, also a mongos or a server outside
any set. HOST:PORT is the member's name in the replica set. HAProxy asks for this page in its health
checks, as in deploy/haproxy: clients then always reach the primary, or a member to read from.

Pages are answered from what is known, and connect to no server. Until the first checks of a
deployment have ended, sdam_known is 0 and its other metrics are missing.

With --targets, all metrics have the label deployment, as with --name NAME, and /probe, /topology,
/healthz, /primary and /member need the parameter target=NAME. The file is TOML, with a name and a
connection string in each line:

  # Names consist of letters, digits, '-', '_' and '.'; one with dots needs quotes.
  orders = \"mongodb://127.0.0.1:27017/?replicaSet=rs0\"
  \"users.eu\" = \"mongodb+srv://users.example.com/\"
  # Secrets may be in files, whose paths are relative to the folder of this one.
  stock = { uri = \"mongodb://sdam@127.0.0.1/\", passwordFile = \"stock-password\" }
  # or, with the whole connection string: stock = { uriFile = \"stock-uri\" }

A changed file, also one that it names, is in use after two seconds, or at once at SIGHUP:
deployments start and stop, and those that are the same go on. A deployment that cannot be watched
as the file says is skipped, or stays as it was, is reported on standard error, and counts in the
metric sdam_config_invalid_targets. A file that is no TOML, cannot be read, or has no other
deployment changes nothing and sets sdam_config_last_reload_successful to 0; at the start, it ends
the program. Standard input (-) and pipes are read once.

With --demo, the first line of the output ends with (simulated), all metrics have the label
simulated=\"true\", and so has /topology.

A deployment that does not answer, or whose records cannot be looked up, counts as down (sdam_up 0);
/topology tells why. Its look-ups are repeated while the others are served.

The variables MONGODB_LOG_ALL, MONGODB_LOG_TOPOLOGY, MONGODB_LOG_PATH and so on configure logging.

Exit codes: 0 Ctrl-C or SIGTERM, 3 the command line or connection string is wrong, 4 another failure.

Example:
  sdam export --listen 127.0.0.1:9216 \\
    'mongodb://127.0.0.1:27017/?replicaSet=rs0'";

/// Returns the text that the help shows after the options.
fn after_help() -> String {
    let pages = PAGES.trim_end().replace('\n', "\n  ");
    format!("The first line of the output is the address. The pages:\n\n  {pages}\n{AFTER}")
}

/// Serves metrics and the health of deployments over HTTP, until Ctrl-C.
///
/// The primary of the replica set that --demo simulates steps down every 30 seconds.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = after_help())]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Watch the deployments of FILE, which is read again when it changes.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["uri", "uri_file", "password_file", "demo"])]
    pub targets: Option<PathBuf>,
    /// Name of the only deployment, for the label deployment of its metrics.
    #[arg(long, value_name = "NAME", value_parser = name, conflicts_with = "targets")]
    pub name: Option<String>,
    /// Address to serve at; port 0 chooses a free one.
    // The Prometheus project has assigned this port to MongoDB exporters.
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address, default_value = "127.0.0.1:9216")]
    pub listen: SocketAddr,
    /// The interval between step-downs of a simulated deployment's primary.
    #[arg(skip = Duration::from_secs(30))]
    pub failover_period: Duration,
    /// The log configuration, which is not part of the command line.
    #[arg(skip)]
    pub log: LogConfig,
}

impl Default for Arguments {
    /// Returns the arguments of an empty command line.
    fn default() -> Self {
        defaults()
    }
}

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
    notify(true);
    let interrupt = interrupt.inspect(|()| notify(false));
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
    started: UnboundedReceiver<Rc<Exported>>,
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
            let (name, is_simulated) = (arguments.name.clone(), simulated.is_some());
            let only = Named { name, uri, is_simulated, origin: None };
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

/// Tells the supervisor of this process, such as systemd (`Type=notify`), that clients are served
/// or, if `is_ready` is false, that the program will end once it has served its current clients. A
/// supervisor sets the variable `NOTIFY_SOCKET`; without it, this does nothing.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only systemd listens"))]
fn notify(is_ready: bool) {
    #[cfg(target_os = "linux")]
    {
        use sd_notify::NotifyState::{Ready, Stopping};

        // Ignore errors, because the supervisor itself detects a missing notification.
        let _ = sd_notify::notify(&[if is_ready { Ready } else { Stopping }]);
    }
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

fn name(text: &str) -> Result<String, &'static str> {
    check_name(text).map(|()| text.to_owned())
}
