//! Errors that the client itself creates for commands.

use sdam_core::{
    document::MalformedDocument,
    error::{Error, ErrorKind, Stage},
    event::CommandInfo,
};
use sdam_transport::pool::CommandReply;

use super::Command;
use crate::select::error::SelectionError;

pub(super) const NO_WRITES_PERFORMED: &str = "NoWritesPerformed";

/// Returns the error for an operation for which no server was selected.
pub(super) fn unselected(error: SelectionError) -> Error {
    let (kind, message) = match &error {
        SelectionError::Timeout(_) => {
            (ErrorKind::SelectionTimeout, "no server was selected in time")
        }
        _ => (ErrorKind::Selection, "no server was selected"),
    };
    Error::new(kind, Stage::CheckOut, message).with_source(error)
}

/// Returns the error for a command to which no field can be added.
pub(super) fn malformed(command: &Command<'_>, error: MalformedDocument) -> Error {
    let message = "the command cannot be encoded";
    let error = Error::new(ErrorKind::Invalid, Stage::Operation, message).with_source(error);
    of(command, error)
}

/// Returns the error for a command with `field`, which the client adds itself.
pub(super) fn reserved(command: &Command<'_>, field: &str) -> Error {
    let message =
        format!("the command has the field `{field}`, which the client adds: leave it out");
    of(command, Error::new(ErrorKind::Invalid, Stage::Operation, message))
}

/// Returns the error for a command whose remaining time is too short.
pub(super) fn without_time(command: &Command<'_>) -> Error {
    let message = "the time limit is too short for a round trip to the server";
    of(command, Error::new(ErrorKind::TimeLimit, Stage::Operation, message))
}

/// Adds the command and the reply to `error`, which was found in a `reply` with `ok: 1`.
pub(super) fn in_reply(command: &Command<'_>, error: Error, reply: &CommandReply) -> Error {
    of(command, error.with_reply(reply.body()))
}

/// Adds the name of the command to the error.
pub(super) fn of(command: &Command<'_>, error: Error) -> Error {
    error.with_command(CommandInfo::name_of(command.document))
}
