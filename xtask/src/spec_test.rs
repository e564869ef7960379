//! `cargo xtask spec-test`: the official test files, as functions, through the engine and in
//! single-threaded mode.

mod deployment;
pub(crate) mod fetch;
mod report;
mod runner;
mod servers;
mod zone;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use sdam_spec::corpus::Corpus;
use sdam_spec::suite::Suite;

use self::report::{Cell, Report};
use self::runner::{Column, Job};
use crate::Result;
use crate::args::Args;

pub(crate) const USAGE: &str = "\
run the official specification tests

usage: cargo xtask spec-test [--corpus DIR] [--suite NAME]... [--runtime NAME]... [--json FILE]

  --corpus DIR    where the files are: a clone of the specifications' repository, its folder
                  `source`, or a source distribution of PyMongo
  --suite NAME    only this suite, such as `rs`, or these, such as `server-selection`
  --runtime NAME  only this column: `pure` (no runtime), the name of a runtime, `scan`
                  (single-threaded mode), or `mongod-4.2`, `-4.4`, `-5.0`, `-6.0` (real servers,
                  which do not run unless they are named)
  --json FILE     write the figures to FILE, too

Without --corpus the files are looked for in the folder named by SDAM_SPEC_CORPUS, then in
target/spec-corpus, and are else fetched to there, with git or, where that fails, with pip.
The columns of runtimes look SRV seed lists up at a DNS server on loopback, Knot, which is fetched
where it is not installed.
A failure, a file that was not run and a missing file make the command fail. Where single-threaded
mode has to do something else than a file says, `scan` does not count it: it chooses at random, and
so as in_window's files say only if no server is busier than another.";

pub(crate) fn run(mut args: Args) -> Result<()> {
    let folder = args.option("--corpus")?;
    let json = args.option("--json")?;
    let suites = choose_suites(&values(&mut args, "--suite")?)?;
    let columns = choose_columns(&values(&mut args, "--runtime")?)?;
    args.finish()?;
    let corpus = match folder {
        Some(folder) => Corpus::open(Path::new(&folder))?,
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
    if let Some(path) = json {
        fs::write(&path, report.to_json())
            .map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    println!("{}", report.summary());
    report.verdict()
}

fn run_all(jobs: &[Job], columns: &[Column]) -> Report {
    let mut report = Report::default();
    for column in columns {
        let (mut work, mut rest) = (Vec::new(), Vec::new());
        for job in jobs {
            match column.select(job) {
                Some(job) => work.push(job),
                None => rest.push(job.0),
            }
        }
        let work = Arc::new(work);
        let cells = runner::run(*column, &work);
        for ((suite, _), cell) in work.iter().zip(cells) {
            report.add(suite.name(), column.name(), cell);
        }
        for suite in rest {
            report.add(suite.name(), column.name(), Cell::default());
        }
    }
    report
}

/// Takes every value of an option that may be given several times.
fn values(args: &mut Args, name: &str) -> Result<Vec<String>> {
    let mut values = Vec::new();
    while let Some(value) = args.option(name)? {
        values.push(value);
    }
    Ok(values)
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
    if let Some(unknown) = names
        .iter()
        .find(|name| known().all(|column| column.name() != name.as_str()))
    {
        let known: Vec<_> = known().map(Column::name).collect();
        return Err(format!("no such runtime: {unknown}; there are {}", known.join(", ")).into());
    }
    if names.is_empty() {
        return Ok(Column::ALL.to_vec());
    }
    Ok(known()
        .filter(|column| names.iter().any(|name| name == column.name()))
        .collect())
}

#[cfg(test)]
mod tests;
