//! Checks a deployment step by step, from the connection string to server selection, and gives a
//! verdict and a remedy for each step.

mod arguments;
mod check;
mod finding;
mod findings;
mod observation;
mod observe;
mod report;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use sdam::Runtime;
use sdam_sim::{Blueprint, Served};

pub use self::arguments::{Arguments, Collection, FailOn, Suppression};
use self::observation::Observation;
use crate::{
    console::Console,
    exit::Exit,
    failure::Failure,
    target::{Target, redact},
    terminal::{Palette, Tone},
};

/// Checks the deployment that `arguments` name, and prints the findings.
///
/// Must be called within a tokio runtime with I/O and timers.
///
/// # Errors
///
/// If writing to the console fails. Other errors are printed there and set the exit code.
pub async fn run<O: Write, R: Write>(
    arguments: &Arguments,
    mut console: Console<O, R>,
) -> io::Result<Exit> {
    match prepare(arguments) {
        Ok((uri, runtime, simulated)) => {
            if simulated.is_some() && !arguments.json {
                let words = Target::simulation(&uri);
                let words = console.palette.paint(Tone::Faint, words);
                writeln!(console.output, "{words}")?;
            }
            examine(arguments, &uri, &runtime, &mut console.output, console.palette).await
        }
        Err(failure) => failure.report(&mut console.remarks),
    }
}

/// Returns the connection string, the runtime, and the simulated deployment if one was requested.
fn prepare(arguments: &Arguments) -> Result<(String, Runtime, Option<Served>), Failure> {
    let (uri, simulated) = arguments.target.deployment(|| Blueprint::replica_set(3).serve())?;
    Ok((uri, arguments.target.runtime()?, simulated))
}

/// Checks the deployment at `uri` using `runtime`, and prints the findings.
async fn examine(
    arguments: &Arguments,
    uri: &str,
    runtime: &Runtime,
    output: &mut impl Write,
    palette: Palette,
) -> io::Result<Exit> {
    let seen = observe::observe(arguments, uri, runtime).await;
    let (text, exit) = conclude(arguments, uri, &seen, palette);
    write!(output, "{text}")?;
    Ok(exit)
}

/// Returns the text to print for the observation, and the exit code.
fn conclude(
    arguments: &Arguments,
    uri: &str,
    seen: &Observation,
    palette: Palette,
) -> (String, Exit) {
    let mut findings = findings::of(seen);
    finding::suppress(&mut findings, &arguments.suppress);
    let text = if arguments.json {
        report::json(&redact(uri), arguments.target.demo, &findings)
    } else {
        report::text(palette, &findings, seen, arguments.verbose)
    };
    (text, finding::exit(&findings, arguments.fail_on))
}
