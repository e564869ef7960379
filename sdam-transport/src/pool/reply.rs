use std::fmt;

use sdam_core::{
    app_error::{AppError, ErrorOutcome},
    error::{ErrorKind, Labelled, ServerError, Stage},
    reply::{self, WriteError},
};

use crate::{error::TransportError, wire::WireMessage};

/// The reply to a command that has run: its `ok` is 1.
#[derive(Clone, Debug)]
pub struct CommandReply {
    message: WireMessage,
    write_concern_error: Option<ServerError>,
    outcome: ErrorOutcome,
}

impl CommandReply {
    /// Checks `message`, the reply to a command, and reports the error in it, if there is one:
    /// `report` is given the document, for [`AppError::reply`].
    ///
    /// # Errors
    ///
    /// The server's error, with the [reply](ConnectionError::body), if `ok` is not 1; an
    /// [`ErrorKind::Protocol`] error if there is no `ok`, or the document is not BSON. Close the
    /// connection after the latter.
    pub fn check(
        message: WireMessage,
        report: impl FnOnce(&[u8]) -> ErrorOutcome,
    ) -> Result<Self, ConnectionError> {
        let checked = reply::check(message.body(), Stage::Operation);
        let outcome = match &checked {
            // A reply without an error has no effect, so it does not lock the topology.
            Ok(None) => ErrorOutcome::Irrelevant,
            Ok(Some(_)) | Err(_) => report(message.body()),
        };
        match checked {
            Ok(write_concern_error) => Ok(Self {
                message,
                write_concern_error,
                outcome,
            }),
            Err(error) => Err(ConnectionError {
                reply: (error.kind == ErrorKind::Command).then(|| Box::new(message)),
                error,
                outcome,
            }),
        }
    }

    /// Returns the reply's document, in BSON.
    pub fn body(&self) -> &[u8] {
        self.message.body()
    }

    /// Returns the reply as it was received.
    pub fn message(&self) -> &WireMessage {
        &self.message
    }

    /// Returns the errors of single writes, `writeErrors`. They say nothing about the server.
    pub fn write_errors(&self) -> Vec<WriteError> {
        reply::write_errors(self.body())
    }

    /// Returns the error of the write concern, or that of a legacy getLastError: the command has
    /// run, but is perhaps not durable, or not on every member that it has to reach. Its effects on
    /// the topology have run.
    pub fn write_concern_error(&self) -> Option<&ServerError> {
        self.write_concern_error.as_ref()
    }

    /// Adds a label to the [`write_concern_error`](Self::write_concern_error), if there is one.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        if let Some(error) = &mut self.write_concern_error
            && !error.labels.iter().any(|own| **own == *label)
        {
            let labels = error.labels.iter().cloned();
            error.labels = labels.chain([label.into()]).collect();
        }
        self
    }

    /// Returns what the report of [`write_concern_error`](Self::write_concern_error) has changed in
    /// the topology.
    pub fn outcome(&self) -> ErrorOutcome {
        self.outcome
    }
}

/// The error of a connection that could not be established or broke, or the server's error in the
/// reply to a command; classified and reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionError {
    /// The cause, with the labels that the operation's error gets, too.
    pub error: ServerError,
    /// The effect of the report on the topology.
    pub outcome: ErrorOutcome,
    /// The reply to the command, if the server has answered with the error.
    pub(super) reply: Option<Box<WireMessage>>,
}

impl ConnectionError {
    /// Creates the error of a command that was not answered.
    pub fn new(error: ServerError, outcome: ErrorOutcome) -> Self {
        Self {
            error,
            outcome,
            reply: None,
        }
    }

    /// Returns the server's reply to the command, a BSON document whose `ok` is not 1; `None` if the
    /// connection was not established, or broke. Without a reply nobody knows whether the command
    /// took effect.
    pub fn body(&self) -> Option<&[u8]> {
        self.reply.as_ref().map(|message| message.body())
    }

    /// Returns whether it took too long.
    pub fn is_timeout(&self) -> bool {
        self.error.is_timeout()
    }

    /// Returns whether the connection could not be established or broke, also by a message that
    /// cannot be the reply.
    pub fn is_network(&self) -> bool {
        self.error.is_network()
    }

    pub(super) fn labelled(
        error: &TransportError,
        report: &AppError<'_>,
        outcome: ErrorOutcome,
    ) -> Self {
        let mut error = ServerError::from(error);
        let labels = report.labels().iter();
        error.labels = labels.map(|label| Box::from(*label)).collect();
        Self::new(error, outcome)
    }

    pub(super) fn gone() -> Self {
        let text = "the server has left the topology, or the topology is closed";
        Self::new(
            ServerError::new(ErrorKind::Internal, Stage::Connect, text),
            ErrorOutcome::UnknownServer,
        )
    }

    pub(super) fn panicked(panic: &str) -> Self {
        let text = format!("opening the connection panicked: {panic}");
        Self::new(
            ServerError::new(ErrorKind::Internal, Stage::Connect, text),
            ErrorOutcome::Irrelevant,
        )
    }
}

impl Labelled for ConnectionError {
    fn has_label(&self, label: &str) -> bool {
        self.error.has_label(label)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for ConnectionError {}
