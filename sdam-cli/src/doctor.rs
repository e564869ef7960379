//! A check-up of a deployment: each step from the connection string to the selection of a server,
//! with a verdict and what to do.

mod arguments;
mod check;
mod explanation;
mod finding;
mod findings;
mod observation;
mod observe;
mod report;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use sdam::Runtime;

pub use self::arguments::{Arguments, CheckId, FailOn, Suppression};
use self::observation::Observation;
use crate::{exit::Exit, failure::Failure, target::redact, terminal::Palette, watch::Console};

/// Checks the deployment of `arguments`, and prints the findings.
///
/// Has to be called in the context of a tokio runtime with I/O and timers.
///
/// # Errors
///
/// Only those of writing; other errors are printed on the console and set the exit code.
pub async fn run<O: Write, R: Write>(
    arguments: &Arguments,
    mut console: Console<O, R>,
) -> io::Result<Exit> {
    let offline = match arguments.explain {
        Some(CheckId(check)) => Some(report::explanation(check)),
        None => arguments.list.then(report::list),
    };
    if let Some(text) = offline {
        write!(console.output, "{text}")?;
        return Ok(Exit::SUCCESS);
    }
    match prepare(arguments) {
        Ok((uri, runtime)) => {
            examine(
                arguments,
                &uri,
                &runtime,
                &mut console.output,
                console.palette,
            )
            .await
        }
        Err(failure) => failure.report(&mut console.remarks),
    }
}

fn prepare(arguments: &Arguments) -> Result<(String, Runtime), Failure> {
    let uri = arguments.target.uri()?.ok_or_else(|| {
        Failure::config(
            "there is no connection string; give one, or set SDAM_URI, or use --uri-file",
        )
    })?;
    Ok((uri, arguments.target.runtime()?))
}

/// Checks the deployment of `uri` on `runtime`, and prints the findings.
async fn examine(
    arguments: &Arguments,
    uri: &str,
    runtime: &Runtime,
    output: &mut impl Write,
    palette: Palette,
) -> io::Result<Exit> {
    let seen = observe::observe(&arguments.target, uri, runtime, arguments.timeout).await;
    let (text, exit) = conclude(arguments, uri, &seen, palette);
    write!(output, "{text}")?;
    Ok(exit)
}

/// Returns what is printed of what was seen, and the exit code.
fn conclude(
    arguments: &Arguments,
    uri: &str,
    seen: &Observation,
    palette: Palette,
) -> (String, Exit) {
    let mut findings = findings::of(seen);
    finding::suppress(&mut findings, &arguments.suppress);
    finding::select(&mut findings, &arguments.only);
    let text = if arguments.json {
        report::json(&redact(uri), &findings)
    } else if arguments.short {
        report::short(palette, &findings, seen)
    } else {
        report::text(palette, &findings, seen, arguments.verbose)
    };
    (text, finding::exit(&findings, arguments.fail_on))
}
