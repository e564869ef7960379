//! Clients of real servers, and random faults, for hours. `cargo xtask soak` builds and calls it.
//!
//! Real deployments have faults, drawn from a seed; each is healed before long. Clients on several
//! runtimes write and read all the time, and some are opened and closed all the time. After each
//! round of faults there is a rest point: the traffic is paused until everything is quiet, and the
//! process is counted. The program fails if
//!
//! - descriptors, threads or tasks exceed those of the first rest point,
//! - memory grows steadily,
//! - a client does not write within a minute after a fault, or fails without one,
//! - an event is lost, or
//! - something is left at the end.

mod delivered;
mod deployment;
mod fault;
mod gate;
mod leak;
mod process;
mod report;
mod rest;
mod runtimes;
mod schedule;
mod soak;
mod worker;

use std::error::Error;
use std::process::ExitCode;

use crate::soak::Plan;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match plan(std::env::args().skip(1)).and_then(|plan| soak::run(&plan)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the plan of the command line: minutes, deployments, clients and the seed.
fn plan(mut arguments: impl Iterator<Item = String>) -> Result<Plan> {
    let mut number = |name| {
        let text = arguments.next().ok_or_else(|| format!("the number of {name} is missing"))?;
        text.parse::<u32>().map_err(|error| format!("{name} `{text}`: {error}"))
    };
    let (minutes, deployments, clients) =
        (number("minutes")?, number("deployments")?, number("clients")?);
    if minutes == 0 || deployments == 0 || clients < deployments {
        return Err("a run needs a minute, a deployment, and a client for each deployment".into());
    }
    Ok(Plan {
        minutes,
        deployments: deployments as usize,
        clients: clients as usize,
        seed: number("seed")?.into(),
    })
}
