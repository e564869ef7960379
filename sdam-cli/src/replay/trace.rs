//! Replays recordings.

use std::{
    error::Error,
    io::{self, BufRead, Write},
};

use sdam_core::event::EventKind;
use sdam_events::replay::{ReplayError, replay_to};

use crate::{
    exit::Exit,
    failure::Failure,
    file_error::cannot_read,
    json::{self, RoundTrips},
    terminal::json_line,
};

/// Replays `recording`, which is called `name` in error messages. Prints the topology after each
/// reproduced change to `output`, and the result to `remarks`.
///
/// # Errors
///
/// If writing to an output fails. An invalid recording leads to [`Exit::BAD_LINES`], and a replay
/// with a different result to [`Exit::DIFFERENT`].
pub fn trace(
    name: &str,
    recording: impl BufRead,
    mut output: impl Write,
    mut remarks: impl Write,
) -> io::Result<Exit> {
    let mut written = Ok(());
    let outcome = replay_to(recording, |_, event| {
        if let (Ok(()), EventKind::TopologyDescriptionChanged { new, .. }) = (&written, &event.kind)
        {
            written = writeln!(output, "{}", json_line(&json::snapshot(new, RoundTrips::Shown)));
        }
    });
    written.and_then(|()| output.flush())?;
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(ReplayError::Io(error)) => {
            return Failure::config(cannot_read(name, &error)).report(&mut remarks);
        }
        Err(error) => {
            let remedy = "`sdam watch --record FILE` makes a recording";
            writeln!(remarks, "error: {name}: {error}; {remedy}")?;
            if let Some(source) = error.source() {
                writeln!(remarks, "  because {source}")?;
            }
            return Ok(Exit::BAD_LINES);
        }
    };
    writeln!(
        remarks,
        "note: {} inputs were replayed, {} events and pool commands match the recording",
        outcome.inputs, outcome.matched
    )?;
    match outcome.divergence {
        None => Ok(Exit::SUCCESS),
        Some(divergence) => {
            writeln!(remarks, "error: {name}: {divergence}")?;
            Ok(Exit::DIFFERENT)
        }
    }
}
