//! Running files in one column of the table.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use futures::future::BoxFuture;
use sdam_core::address::ServerAddress;
use sdam_runtime_tokio::from_handle;
use sdam_sim::Blueprint;
use sdam_sim::runtime::Sim;
use sdam_spec::corpus::File;
use sdam_spec::engine::Host;
use sdam_spec::suite::Suite;
use sdam_spec::unified::Environment;
use serde_json::Value;

use super::deployment;
use super::report::Cell;
use crate::Result;

/// A suite with its files.
pub(crate) type Job = (&'static Suite, Vec<File>);

/// The deployments that a file ran on, or the first difference.
pub(super) type Verdict = Result<Vec<Environment>, String>;

/// The time limit of a file, after which it counts as stuck. The slowest files wait for selections
/// to fail, which takes some seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// The seed of the task order in the simulated column.
const SEED: u64 = 1;

/// A column: the code that files are run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Functions and state machines alone.
    Pure,
    /// The engine, its tasks on tokio's threads.
    Tokio,
    /// The engine, its tasks on smol's global executor.
    Smol,
    /// The engine, its tasks on async-std.
    AsyncStd,
    /// The engine, its tasks in an order decided by a seed.
    Sim,
    /// Single-threaded mode.
    Scan,
}

impl Column {
    pub(crate) const ALL: &[Self] = &[
        Self::Pure,
        Self::Tokio,
        Self::Smol,
        Self::AsyncStd,
        Self::Sim,
        Self::Scan,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Tokio => "tokio",
            Self::Smol => "smol",
            Self::AsyncStd => "async-std",
            Self::Sim => "sim",
            Self::Scan => "scan",
        }
    }

    /// Returns the files of the job that run in this column; `None` if the suite does not apply.
    pub(crate) fn select(self, (suite, files): &Job) -> Option<Job> {
        let covers: fn(&Value) -> bool = match self {
            Self::Pure => suite.pure.map(|_| |_: &Value| true)?,
            Self::Scan => suite.scan?.covers,
            _ if suite.deployed.is_some() => |_: &Value| true,
            _ => suite.engine.map(|_| |_: &Value| true)?,
        };
        let files = files.iter().filter(|file| covers(&file.json));
        Some((suite, files.cloned().collect()))
    }

    /// Returns the host of the engine's tasks; `None` without engine.
    fn host(self) -> Result<Option<Host>, String> {
        let runtime = match self {
            Self::Pure | Self::Scan => return Ok(None),
            Self::Tokio => return tokio().map(Some),
            Self::Smol => sdam_runtime_smol::runtime(),
            Self::AsyncStd => sdam_runtime_async_std::runtime(),
            Self::Sim => return Ok(Some(sim())),
        };
        // Both have their own threads.
        let block_on = |future: BoxFuture<'_, ()>| futures::executor::block_on(future);
        let host = Host::new(Arc::clone(&runtime.spawner), block_on);
        Ok(Some(host.with_deployments(
            deployment::served(),
            move |environment| deployment::serve(environment, runtime.clone(), block_on),
        )))
    }
}

fn tokio() -> Result<Host, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start tokio: {error}"))?;
    let parts = from_handle(runtime.handle().clone()).map_err(|error| error.to_string())?;
    let runtime = Arc::new(runtime);
    let block_on = move |future: BoxFuture<'_, ()>| runtime.block_on(future);
    let host = Host::new(Arc::clone(&parts.spawner), block_on.clone());
    Ok(
        host.with_deployments(deployment::served(), move |environment| {
            deployment::serve(environment, parts.clone(), block_on.clone())
        }),
    )
}

/// Creates the host of the simulated column. Most files do not use its servers but define their
/// own; the others get separate worlds.
fn sim() -> Host {
    let server = ServerAddress::new("nobody", 27017);
    let sim = Sim::new(SEED, &Blueprint::standalone(server));
    let host = Host::new(sim.runtime().spawner, move |future| sim.block_on(future));
    host.with_deployments(deployment::simulated(), |environment| {
        deployment::simulate(environment, SEED)
    })
}

/// Runs every file of `jobs` on a separate thread, which is abandoned if it gets stuck. Returns
/// the outcome of each job.
pub(crate) fn run(column: Column, jobs: &Arc<Vec<Job>>) -> Vec<Cell> {
    let (verdicts, receiver) = mpsc::channel();
    let work = Arc::clone(jobs);
    thread::spawn(move || {
        let host = column.host();
        for (suite, files) in work.iter() {
            for file in files {
                // The receiver is dropped once a file took too long.
                if verdicts
                    .send(check(column, host.as_ref(), suite, file))
                    .is_err()
                {
                    return;
                }
            }
        }
    });
    collect(jobs, LIMIT, &receiver)
}

/// Checks a file, and returns the deployments that it ran on.
fn check(
    column: Column,
    host: Result<&Option<Host>, &String>,
    suite: &Suite,
    file: &File,
) -> Verdict {
    let nothing = || format!("the suite does not run on {}", column.name());
    let outcome = match (column, host?) {
        (Column::Pure, _) => suite.pure.ok_or_else(nothing)?(&file.json),
        (Column::Scan, _) => (suite.scan.ok_or_else(nothing)?.check)(&file.json),
        (_, Some(host)) => match suite.deployed {
            Some(check) => return check(host, &file.json),
            None => suite.engine.ok_or_else(nothing)?(host, &file.json),
        },
        (_, None) => Err(nothing()),
    };
    outcome.map(|()| Vec::new())
}

/// Matches results, which come in the order of files, with their files. After a missing result,
/// the remaining files have no known outcome.
pub(super) fn collect(
    jobs: &[Job],
    limit: Duration,
    verdicts: &mpsc::Receiver<Verdict>,
) -> Vec<Cell> {
    let mut stuck = false;
    let mut cells = Vec::with_capacity(jobs.len());
    for (_, files) in jobs {
        let mut cell = Cell::default();
        for file in files {
            let name = file.name.clone();
            if stuck {
                cell.skipped.push(name);
                continue;
            }
            let verdict = verdicts.recv_timeout(limit).unwrap_or_else(|error| {
                stuck = true;
                Err(match error {
                    RecvTimeoutError::Timeout => format!("no result within {limit:?}"),
                    RecvTimeoutError::Disconnected => "the check panicked".to_owned(),
                })
            });
            match verdict {
                Ok(environments) => {
                    cell.passed += 1;
                    cell.ran.push((name, environments));
                }
                Err(difference) => cell.failed.push((name, difference)),
            }
        }
        cells.push(cell);
    }
    cells
}
