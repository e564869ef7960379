//! Runs files in a column of the report's table.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sdam_live::Version;
use sdam_spec::corpus::File;
use sdam_spec::host::Host;
use sdam_spec::requirement::Environment;
use sdam_spec::run::Run;
use sdam_spec::suite::Suite;

use super::ground::Ground;
use super::report::Cell;
use crate::Result;

/// A suite, and its files that are to be run.
pub(crate) type Job = (&'static Suite, Vec<File>);

/// The environment of a run on a deployment, or the first difference from the expected results.
pub(super) type Verdict = Result<Option<Environment>, String>;

/// A part of a file that is run separately. It receives the host of the worker, if the column has
/// hosts.
type Part = Box<dyn FnOnce(Option<&Host>) -> Verdict + Send>;

/// The time limit until the next result. If it is exceeded, a file counts as stuck.
const LIMIT: Duration = Duration::from_secs(600);

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

    /// Returns whether the files use real sockets, and a clock that stands still while a thread of
    /// this process lacks a processor.
    pub(crate) const fn is_real(self) -> bool {
        matches!(self, Self::Tokio | Self::Smol | Self::AsyncStd)
    }

    /// Returns the number of files that run at the same time. Files that need a deployment spend
    /// most of their time waiting, so many of them can run at once. On real servers, only one file
    /// runs at a time, because files would share fail points.
    const fn workers(self) -> usize {
        match self {
            Self::Tokio | Self::Smol | Self::AsyncStd => 64,
            // Each worker has separate simulations.
            Self::Sim => 2,
            Self::Pure | Self::Scan | Self::Server(_) => 1,
        }
    }

    /// Returns the job with only the files that run in this column, or `None` if the suite does not
    /// run in this column.
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
}

/// Runs all files of `jobs` on separate threads, and returns the outcome of each job. A thread that
/// gets stuck is abandoned.
pub(crate) fn run(column: Column, jobs: &[Job], every_release: bool) -> Vec<Cell> {
    let begin = Instant::now();
    let ground = Ground::new(column, every_release);
    let (mut parts, mut counts) = (Vec::new(), Vec::new());
    let (verdicts, receiver) = mpsc::channel();
    for (suite, file) in files(jobs) {
        let index = counts.len();
        match split(column, ground.as_ref(), suite, file) {
            Ok(own) => {
                counts.push(own.len());
                parts.extend(own.into_iter().map(|part| (index, part)));
            }
            Err(error) => {
                counts.push(1);
                // Sending cannot fail, because the receiver still exists.
                let _ = verdicts.send((index, Err(error)));
            }
        }
    }
    let ground = Arc::new(ground.ok().flatten());
    // Sort the parts of the longest files to the end, from which workers take them. A long file
    // that runs last would delay the end of the run.
    let lengths: Vec<_> = files(jobs).map(|(_, file)| file.json.to_string().len()).collect();
    parts.sort_by_key(|(index, _)| lengths[*index]);
    let parts = Arc::new(Mutex::new(parts));
    for _ in 0..column.workers() {
        let (ground, parts, verdicts) = (Arc::clone(&ground), Arc::clone(&parts), verdicts.clone());
        thread::spawn(move || {
            let host = ground.as_ref().as_ref().map(|ground| (ground.host)());
            loop {
                let next = parts.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some((index, part)) = next else {
                    return;
                };
                // The receiver is dropped when a file has taken too long.
                if verdicts.send((index, part(host.as_ref()))).is_err() {
                    return;
                }
            }
        });
    }
    drop(verdicts);
    let cells = collect(jobs, &counts, LIMIT, &receiver);
    let pace = ground.as_ref().as_ref().and_then(|ground| ground.pace.as_ref());
    let pace = pace.map(|pace| format!(", with a clock {:.1} times slower", pace.slowness()));
    let (name, seconds) = (column.name(), begin.elapsed().as_secs_f64());
    eprintln!("{name}: {seconds:.0} s{}", pace.unwrap_or_default());
    cells
}

fn files(jobs: &[Job]) -> impl Iterator<Item = (&'static Suite, &File)> {
    jobs.iter().flat_map(|(suite, files)| files.iter().map(move |file| (*suite, file)))
}

/// Returns the parts of a file.
fn split(
    column: Column,
    ground: Result<&Option<Ground>, &String>,
    suite: &Suite,
    file: &File,
) -> Result<Vec<Part>, String> {
    let nothing = move || format!("the suite does not run on {}", column.name());
    if let (Some(runs), Some(ground)) = (suite.deployed, ground?) {
        let part = |run: Run| -> Part {
            Box::new(move |host| {
                let environment = run.environment;
                run.on(host.ok_or_else(nothing)?).map(|()| Some(environment))
            })
        };
        return Ok(runs(&ground.offer, &file.json)?.into_iter().map(part).collect());
    }
    let (json, pure, scan, engine) = (file.json.clone(), suite.pure, suite.scan, suite.engine);
    let part: Part = Box::new(move |host| {
        match column {
            Column::Pure => pure.ok_or_else(nothing)?(&json),
            Column::Scan => scan.ok_or_else(nothing)?(&json),
            _ => engine.ok_or_else(nothing)?(host.ok_or_else(nothing)?, &json),
        }
        .map(|()| None)
    });
    Ok(vec![part])
}

/// The state of a file while results arrive.
#[derive(Default)]
struct Progress {
    /// The number of parts without a result.
    left: usize,
    ran: Vec<Environment>,
    difference: Option<String>,
}

/// Collects the results of the files. Files are numbered across all jobs, and `counts` contains the
/// number of parts of each file. If no result arrives within `limit`, or a check has panicked, the
/// first incomplete file counts as failed and all other incomplete files as skipped.
pub(super) fn collect(
    jobs: &[Job],
    counts: &[usize],
    limit: Duration,
    verdicts: &mpsc::Receiver<(usize, Verdict)>,
) -> Vec<Cell> {
    let new = |left: &usize| Progress { left: *left, ..Progress::default() };
    let mut all: Vec<Progress> = counts.iter().map(new).collect();
    let mut stuck = None;
    for _ in 0..counts.iter().sum() {
        match verdicts.recv_timeout(limit) {
            Ok((index, verdict)) => {
                let own = &mut all[index];
                own.left -= 1;
                match verdict {
                    Ok(ran) => own.ran.extend(ran),
                    Err(difference) => drop(own.difference.get_or_insert(difference)),
                }
            }
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
    let mut all = all.into_iter().zip(counts);
    let cells = jobs.iter().map(|(_, files)| {
        let mut cell = Cell::default();
        for (file, (mut own, count)) in files.iter().zip(&mut all) {
            let name = file.name.clone();
            if own.left > 0 && own.difference.is_none() {
                own.difference = stuck.take();
            }
            match own.difference {
                Some(difference) => cell.failed.push((name, difference)),
                None if own.left > 0 => cell.skipped.push(name),
                // None of the file's tests can run on these deployments.
                None if *count == 0 => {}
                None => {
                    own.ran.sort_unstable();
                    cell.passed += 1;
                    cell.ran.push((name, own.ran));
                }
            }
        }
        cell
    });
    cells.collect()
}
