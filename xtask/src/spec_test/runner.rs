//! Runs files in a column of the report's table.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use futures::future::BoxFuture;
use sdam_core::address::ServerAddress;
use sdam_live::Version;
use sdam_runtime_tokio::from_handle;
use sdam_sim::Blueprint;
use sdam_sim::runtime::Sim;
use sdam_spec::corpus::File;
use sdam_spec::host::Host;
use sdam_spec::requirement::Environment;
use sdam_spec::suite::Suite;
use sdam_transport::runtime::Runtime;

use super::deployment;
use super::report::Cell;
use super::servers::Servers;
use super::zone;
use crate::Result;

/// A suite, and those of its files that are to be run.
pub(crate) type Job = (&'static Suite, Vec<File>);

/// The deployment of each test run, or the first difference from the expected results.
pub(super) type Verdict = Result<Vec<Environment>, String>;

/// The time limit for a file. A file that exceeds it counts as stuck. The slowest files spend
/// several seconds waiting for selections to fail.
const LIMIT: Duration = Duration::from_secs(120);

/// The seed that determines the order of tasks in the simulated column.
const SEED: u64 = 1;

/// A column of the report's table: the code that runs the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Only functions and state machines.
    Pure,
    /// The engine, with its tasks on tokio's threads.
    Tokio,
    /// The engine, with its tasks on smol's global executor.
    Smol,
    /// The engine, with its tasks on async-std.
    AsyncStd,
    /// The engine in the simulation, where a seed decides the order of tasks.
    Sim,
    /// Single-threaded mode.
    Scan,
    /// The engine on tokio's threads, with real servers of this series.
    Server(Version),
}

impl Column {
    pub(crate) const ALL: &[Self] =
        &[Self::Pure, Self::Tokio, Self::Smol, Self::AsyncStd, Self::Sim, Self::Scan];

    /// The columns with real servers, which run only if they are named.
    pub(crate) const SERVERS: &[Self] = &[
        Self::Server(Version::V4_2),
        Self::Server(Version::V4_4),
        Self::Server(Version::V5_0),
        Self::Server(Version::V6_0),
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Tokio => "tokio",
            Self::Smol => "smol",
            Self::AsyncStd => "async-std",
            Self::Sim => "sim",
            Self::Scan => "scan",
            Self::Server(Version::V4_2) => "mongod-4.2",
            Self::Server(Version::V4_4) => "mongod-4.4",
            Self::Server(Version::V5_0) => "mongod-5.0",
            Self::Server(_) => "mongod-6.0",
        }
    }

    /// Returns the number of files that run at the same time. Files that need a deployment spend
    /// most of their time waiting, so many of them can run at once. On real servers, only one file
    /// runs at a time, because files would share fail points.
    const fn workers(self) -> usize {
        match self {
            Self::Tokio | Self::Smol | Self::AsyncStd => 24,
            // Each worker has simulations of its own.
            Self::Sim => 2,
            Self::Pure | Self::Scan | Self::Server(_) => 1,
        }
    }

    /// Returns the job with only those files that run in this column, or `None` if the suite does
    /// not run in it.
    pub(crate) fn select(self, (suite, files): &Job) -> Option<Job> {
        let applies = match self {
            Self::Pure => suite.pure.is_some(),
            Self::Scan => suite.scan.is_some(),
            Self::Server(_) => suite.deployed.is_some(),
            _ => suite.deployed.is_some() || suite.engine.is_some(),
        };
        let covers = |file: &&File| self != Self::Scan || (suite.scan_covers)(&file.json);
        applies.then(|| (*suite, files.iter().filter(covers).cloned().collect()))
    }

    /// Returns the host for the engine's tasks, or `None` if this column does not run the engine.
    fn host(self) -> Result<Option<Host>, String> {
        // smol and async-std run tasks on their own threads.
        let alone = |future: BoxFuture<'_, ()>| futures::executor::block_on(future);
        Ok(Some(match self {
            Self::Pure | Self::Scan => return Ok(None),
            Self::Tokio => {
                let (runtime, parts) = start_tokio()?;
                host(parts, move |future: BoxFuture<'_, ()>| runtime.block_on(future))
            }
            Self::Server(version) => servers(version)?,
            Self::Smol => host(sdam_runtime_smol::runtime(), alone),
            Self::AsyncStd => host(sdam_runtime_async_std::runtime(), alone),
            Self::Sim => sim(),
        }))
    }
}

/// Creates the host for a runtime.
fn host(runtime: Runtime, block_on: impl Fn(BoxFuture<'_, ()>) + Clone + 'static) -> Host {
    let (spawner, backend) = (Arc::clone(&runtime.spawner), runtime.backend.clone());
    let own = block_on.clone();
    Host {
        look_up: Box::new(move || zone::real(backend.clone())),
        environments: deployment::served(),
        deploy: Box::new(move |environment| {
            deployment::serve(environment, runtime.clone(), own.clone())
        }),
        ..Host::new(spawner, block_on)
    }
}

/// Creates the host for real servers. It does not run all tests, because it has no sharded cluster.
fn servers(version: Version) -> Result<Host, String> {
    let (runtime, parts) = start_tokio()?;
    let servers = Servers::start(version)?;
    let block_on = move |future: BoxFuture<'_, ()>| runtime.block_on(future);
    let own = block_on.clone();
    let spawner = Arc::clone(&parts.spawner);
    Ok(Host {
        environments: servers.environments(),
        deploy: Box::new(move |environment| {
            servers.deploy(environment, parts.clone(), own.clone())
        }),
        is_partial: true,
        ..Host::new(spawner, block_on)
    })
}

fn start_tokio() -> Result<(Arc<tokio::runtime::Runtime>, Runtime), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start tokio: {error}"))?;
    let parts = from_handle(runtime.handle().clone()).map_err(|error| error.to_string())?;
    Ok((Arc::new(runtime), parts))
}

/// Creates the host for the simulated column. Most files define their own servers. Each of the
/// other files gets a simulation of its own.
fn sim() -> Host {
    let server = ServerAddress::new("nobody", 27017);
    let sim = Sim::new(SEED, &Blueprint::standalone(server));
    zone::simulated(&sim);
    let backend = sim.runtime().backend;
    Host {
        look_up: Box::new(move || Ok(backend.clone())),
        environments: deployment::simulated(),
        deploy: Box::new(|environment| deployment::simulate(environment, SEED)),
        ..Host::new(sim.runtime().spawner, move |future| sim.block_on(future))
    }
}

/// Runs all files of `jobs` on separate threads, and returns the outcome of each job. A thread that
/// gets stuck is abandoned.
pub(crate) fn run(column: Column, jobs: &Arc<Vec<Job>>) -> Vec<Cell> {
    let (verdicts, receiver) = mpsc::channel();
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..column.workers() {
        let (jobs, next, verdicts) = (Arc::clone(jobs), Arc::clone(&next), verdicts.clone());
        thread::spawn(move || {
            let host = column.host();
            let files = jobs.iter().flat_map(|(suite, files)| {
                let files = files.iter();
                files.map(move |file| (suite, file))
            });
            let mut files: Vec<_> = files.enumerate().collect();
            // The longest files come first, because a long file that is run last would delay the
            // end.
            files.sort_by_cached_key(|(_, (_, file))| Reverse(file.json.to_string().len()));
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some((index, (suite, file))) = files.get(place) else {
                    return;
                };
                let verdict = check(column, host.as_ref(), suite, file);
                // The receiver is dropped when a file has taken too long.
                if verdicts.send((*index, verdict)).is_err() {
                    return;
                }
            }
        });
    }
    drop(verdicts);
    collect(jobs, LIMIT, &receiver)
}

/// Checks a file, and returns the deployments on which it ran.
fn check(
    column: Column,
    host: Result<&Option<Host>, &String>,
    suite: &Suite,
    file: &File,
) -> Verdict {
    let nothing = || format!("the suite does not run on {}", column.name());
    let outcome = match (column, host?) {
        (Column::Pure, _) => suite.pure.ok_or_else(nothing)?(&file.json),
        (Column::Scan, _) => suite.scan.ok_or_else(nothing)?(&file.json),
        (_, Some(host)) => match suite.deployed {
            Some(check) => return check(host, &file.json),
            None => suite.engine.ok_or_else(nothing)?(host, &file.json),
        },
        (_, None) => Err(nothing()),
    };
    outcome.map(|()| Vec::new())
}

/// Collects the results of the files. Files are numbered across all jobs. If no result arrives
/// within the time limit, the first file without a result counts as failed, and the outcome of the
/// other files without a result is unknown.
pub(super) fn collect(
    jobs: &[Job],
    limit: Duration,
    verdicts: &mpsc::Receiver<(usize, Verdict)>,
) -> Vec<Cell> {
    let total = jobs.iter().map(|(_, files)| files.len()).sum();
    let mut results: Vec<Option<Verdict>> = Vec::new();
    results.resize_with(total, || None);
    let mut stuck = None;
    for _ in 0..total {
        match verdicts.recv_timeout(limit) {
            Ok((index, verdict)) => results[index] = Some(verdict),
            Err(RecvTimeoutError::Timeout) => {
                stuck = Some(format!("no result within {limit:?}"));
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                stuck = Some("the check panicked".to_owned());
                break;
            }
        }
    }
    let mut results = results.into_iter();
    let cells = jobs.iter().map(|(suite, files)| {
        let mut cell = Cell::default();
        for (file, result) in files.iter().zip(&mut results) {
            let name = file.name.clone();
            match result.or_else(|| stuck.take().map(Err)) {
                None => cell.skipped.push(name),
                Some(Err(difference)) => cell.failed.push((name, difference)),
                // Perhaps none of the file's tests can run on these deployments.
                Some(Ok(ran)) if suite.deployed.is_some() && ran.is_empty() => {}
                Some(Ok(ran)) => {
                    cell.passed += 1;
                    cell.ran.push((name, ran));
                }
            }
        }
        cell
    });
    cells.collect()
}
