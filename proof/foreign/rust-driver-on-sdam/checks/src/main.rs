//! Checks and measures the official Rust driver through its public API only.
//!
//! The same source is built with the published driver and with the driver whose `sdam` module is
//! replaced.

mod check;
mod compare;
mod measure;
mod observer;

use std::{env, error::Error, process::ExitCode};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str = "\
usage: driver-checks check [NAME...]
       driver-checks measure [--quick] [NAME...]
       driver-checks compare PUBLISHED OVERLAID [--quick] [--rounds N] [NAME...]

  check    runs the short checks on a real replica set; SDAM_MONGOD names the server
  measure  prints figures, one JSON object a line: checkout, throughput, push, memory, idle, failover
  compare  measures with two builds of this program in alternating rounds, and prints a table";

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let words: Vec<_> = arguments.collect();
    let done = match &*command {
        "check" => check::run(&words),
        "measure" => measure::run(&words),
        "compare" => compare::run(&words),
        // Measurements run this command in a separate process, which simulates the servers.
        "serve" => measure::serve(&words),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns `message` as an error unless the condition holds.
fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(message().into()) }
}
