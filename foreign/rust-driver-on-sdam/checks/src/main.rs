//! Checks and measures the official Rust driver by its public API alone.
//!
//! The same source is built with the driver as published and with the driver whose `sdam` module is
//! replaced.

mod check;
mod observer;

use std::{env, error::Error, process::ExitCode};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str = "\
usage: driver-checks check [NAME...]

  check    runs the short checks on a real replica set; SDAM_MONGOD names the server";

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let words: Vec<_> = arguments.collect();
    let done = match &*command {
        "check" => check::run(&words),
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
