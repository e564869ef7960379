//! `cargo xtask spec-test`: runs the official test files on pure functions, through the engine, and
//! in single-threaded mode.

mod deployment;
pub(crate) mod fetch;
mod report;
mod runner;
mod servers;
mod zone;

use std::fs;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
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
    let mut report = run_all(&jobs, &columns);
    for (suite, files) in jobs.iter().filter(|(suite, _)| suite.deployed.is_some()) {
        for file in files {
            report.leave_out(&suite.name(), file);
        }
    }
    print!("{report}");
    if let Some(path) = &options.json {
        fs::write(path, report.to_json())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    println!("{}", report.summary());
    report.verdict()
}

/// Runs the columns one after another, and then those of real servers at the same time, because
/// their files mostly wait for servers of their own.
fn run_all(jobs: &[Job], columns: &[Column]) -> Report {
    let (servers, others): (Vec<Column>, Vec<Column>) =
        columns.iter().partition(|column| matches!(column, Column::Server(_)));
    let mut finished: Vec<_> = others.into_iter().map(|own| run_column(jobs, own)).collect();
    thread::scope(|scope| {
        let running = servers.into_iter().map(|own| scope.spawn(move || run_column(jobs, own)));
        for column in running.collect::<Vec<_>>() {
            finished.push(column.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    let mut report = Report::default();
    for (column, cells) in finished {
        for (suite, cell) in cells {
            report.add(suite.name(), column.name(), cell);
        }
    }
    report
}

/// Runs the files of a column. Returns the outcome of each suite, which is empty if the suite does
/// not run in the column.
fn run_column(jobs: &[Job], column: Column) -> (Column, Vec<(&'static Suite, Cell)>) {
    let (mut work, mut rest) = (Vec::new(), Vec::new());
    for job in jobs {
        match column.select(job) {
            Some(job) => work.push(job),
            None => rest.push((job.0, Cell::default())),
        }
    }
    let work = Arc::new(work);
    let cells = runner::run(column, &work);
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
