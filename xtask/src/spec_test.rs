//! `cargo xtask spec-test`: runs the official test files on pure functions, through the engine, and
//! in single-threaded mode.

mod deployment;
pub(crate) mod fetch;
mod ground;
pub(crate) mod leaves;
mod pinned;
mod report;
mod runner;
mod servers;

use std::fs;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sdam_spec::corpus::Corpus;
use sdam_spec::suite::Suite;

use self::report::{Cell, Report};
use self::runner::{Column, Job};
use crate::Result;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Read the files from a clone of the specifications' repository, its folder `source`, or a
    /// source distribution of `PyMongo`.
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Run only these suites, such as `rs` or `server-selection`.
    #[arg(long = "suite", value_name = "NAME")]
    suites: Vec<String>,
    /// Run only these columns: `pure` (no runtime), the name of a runtime, `scan` (single-threaded
    /// mode), or `mongod-4.2`, `-4.4`, `-5.0`, `-6.0` (real servers, which run only if they are
    /// named).
    #[arg(long = "runtime", value_name = "NAME")]
    columns: Vec<String>,
    /// Run each test on every suitable release. By default, the column `sim` leaves out releases
    /// between which clients behave alike, and the runtimes run each test on one release for each
    /// kind of deployment.
    #[arg(long)]
    every_release: bool,
    /// Write the figures to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let suites = choose_suites(&options.suites)?;
    let columns = choose_columns(&options.columns)?;
    let corpus = match &options.corpus {
        Some(folder) => Corpus::open(folder)?,
        None => fetch::corpus()?,
    };
    let jobs = suites
        .into_iter()
        .map(|suite| Ok((suite, corpus.files(suite.folder)?)))
        .collect::<Result<Vec<Job>>>()?;
    let mut report = run_all(&jobs, &columns, options.every_release);
    for (suite, files) in &jobs {
        for file in files {
            report.cover(suite, file);
        }
    }
    print!("{report}");
    if let Some(path) = &options.json {
        fs::write(path, report.to_json())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let digest = corpus.digest()?;
    let pinned = pinned::find(&digest);
    let other = format!("not the files that are expected, but others ({digest})");
    println!("{}", report.summary(pinned.map_or(&*other, |pinned| pinned.name)));
    report.verdict()?;
    let Some(pinned) = pinned.filter(|_| options.suites.is_empty()) else {
        return Ok(());
    };
    pinned.check(&report, options.every_release)?;
    if columns.contains(&Column::Pure) {
        let counts = side_by_side(&jobs, cores(), leaves::unnoticed);
        pinned.check_changes([0, 1].map(|index| counts.iter().map(|own| own[index]).sum()))?;
    }
    Ok(())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the columns in three groups, in parallel within each group. The runtimes are the first
/// group, because their clocks stand still while other threads run. The columns of real servers are
/// the last group and all run at the same time, because their files mostly wait for servers. In the
/// other groups, as many columns run at the same time as there are cores.
fn run_all(jobs: &[Job], columns: &[Column], every_release: bool) -> Report {
    let (servers, others): (Vec<Column>, Vec<Column>) =
        columns.iter().partition(|column| matches!(column, Column::Server(_)));
    let (runtimes, others): (Vec<Column>, Vec<Column>) =
        others.into_iter().partition(|column| column.is_real());
    let run = |column: &Column| run_column(jobs, *column, every_release);
    let mut finished = side_by_side(&runtimes, cores(), run);
    finished.extend(side_by_side(&others, cores(), run));
    finished.extend(side_by_side(&servers, servers.len(), run));
    let mut report = Report::default();
    for (column, cells) in finished {
        for (suite, cell) in cells {
            report.add(suite.name(), column.name(), cell);
        }
    }
    report
}

/// Calls `run` for each item on `threads` threads, and returns the results in the order of `items`.
fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    run: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            match items.get(index) {
                Some(item) => results.push((index, run(item))),
                None => return results,
            }
        }
    };
    let mut results = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = running.into_iter();
        let results = results.map(|thread| thread.join().unwrap_or_else(|it| resume_unwind(it)));
        results.flatten().collect::<Vec<_>>()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs the files of a column. Returns the outcome of each suite. If a suite does not run in the
/// column, its outcome is empty.
fn run_column(
    jobs: &[Job],
    column: Column,
    every_release: bool,
) -> (Column, Vec<(&'static Suite, Cell)>) {
    let (mut work, mut rest) = (Vec::new(), Vec::new());
    for job in jobs {
        match column.select(job) {
            Some(job) => work.push(job),
            None => rest.push((job.0, Cell::default())),
        }
    }
    let cells = runner::run(column, &work, every_release);
    let suites = work.iter().map(|(suite, _)| *suite);
    (column, suites.zip(cells).chain(rest).collect())
}

fn choose_suites(names: &[String]) -> Result<Vec<&'static Suite>> {
    let meant = |name: &String| Suite::ALL.iter().any(|suite| suite.matches(name));
    if let Some(unknown) = names.iter().find(|name| !meant(name)) {
        let known: Vec<_> = Suite::ALL.iter().map(Suite::name).collect();
        return Err(format!("no such suite: {unknown}; there are {}", known.join(", ")).into());
    }
    let suites = Suite::ALL.iter();
    Ok(suites
        .filter(|suite| names.is_empty() || names.iter().any(|name| suite.matches(name)))
        .collect())
}

fn choose_columns(names: &[String]) -> Result<Vec<Column>> {
    let known = || Column::ALL.iter().chain(Column::SERVERS).copied();
    if let Some(unknown) =
        names.iter().find(|name| known().all(|column| column.name() != name.as_str()))
    {
        let known: Vec<_> = known().map(Column::name).collect();
        return Err(format!("no such runtime: {unknown}; there are {}", known.join(", ")).into());
    }
    if names.is_empty() {
        return Ok(Column::ALL.to_vec());
    }
    Ok(known().filter(|column| names.iter().any(|name| name == column.name())).collect())
}

#[cfg(test)]
mod tests;
