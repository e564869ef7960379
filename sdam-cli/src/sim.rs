//! `sim`: shows how a client of a simulated deployment reacts to a scenario, in virtual time.
//!
//! The client is a real topology, with its monitors, handshakes and framing. Hours of simulated
//! outage take milliseconds, and the same seed yields the same output.

mod application;
mod arguments;
mod many;
mod observer;
mod outcome;
mod plan;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

pub use self::arguments::{Arguments, Seeds};
use self::plan::{Plan, Show};
use crate::{console::Console, exit::Exit, simulated::Command};

/// Simulates the scenario in `arguments`, once or for each seed.
///
/// # Errors
///
/// If writing to the console fails. Other errors are printed there and set the exit code.
pub fn run<O: Write, R: Write>(
    arguments: &Arguments,
    mut console: Console<O, R>,
) -> io::Result<Exit> {
    if arguments.simulated.steps {
        writeln!(console.output, "{}", Command::help_with_network())?;
        return console.output.flush().map(|()| Exit::SUCCESS);
    }
    let plan = match Plan::of(arguments) {
        Ok(plan) => plan,
        Err(failure) => return failure.report(&mut console.remarks),
    };
    plan.announce(&mut console.remarks)?;
    match &arguments.seeds {
        Some(seeds) => many::run(&plan, seeds, arguments.json, console),
        None => once(&plan, arguments, console),
    }
}

/// Simulates the scenario once, and shows every change.
fn once<O: Write, R: Write>(
    plan: &Plan,
    arguments: &Arguments,
    console: Console<O, R>,
) -> io::Result<Exit> {
    let Console { mut output, mut remarks, palette } = console;
    let show = Show {
        console: Console { output: &mut output, remarks: &mut remarks, palette },
        json: arguments.json,
        record: arguments.record.as_deref(),
    };
    let outcome = match plan.simulate(arguments.simulated.seed.unwrap_or_default(), show)? {
        Ok(outcome) => outcome,
        Err(failure) => return failure.report(&mut remarks),
    };
    for refusal in outcome.refusals() {
        writeln!(remarks, "warning: {refusal}")?;
    }
    // With --json, standard output contains only descriptions of the topology.
    let text = outcome.text(plan.wanted());
    if arguments.json {
        remarks.write_all(text.as_bytes())?;
    } else {
        output.write_all(text.as_bytes())?;
    }
    output.flush()?;
    Ok(outcome.client.access.exit())
}
