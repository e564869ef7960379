use std::fmt;

use sdam_core::{
    app_error::{AppError, ErrorOutcome},
    error::{ErrorKind, Labelled, ServerError, Stage},
    reply::{self, WriteError},
};

use crate::{error::TransportError, wire::WireMessage};

/// The reply to a successful command: its `ok` is 1.
#[derive(Clone, Debug)]
pub struct CommandReply {
    message: WireMessage,
    write_concern_error: Option<ServerError>,
    outcome: ErrorOutcome,
}

impl CommandReply {
    /// Checks `message`, the reply to a command, and reports its error, if any. `report` receives
    /// the document, for [`AppError::reply`].
    ///
    /// # Errors
    ///
    /// The server's error, with the [reply](ConnectionError::body), if `ok` is not 1. An
    /// [`ErrorKind::Protocol`] error if `ok` is missing or the document is not BSON; then close the
    /// connection.
    pub fn check(
        message: WireMessage,
        report: impl FnOnce(&[u8]) -> ErrorOutcome,
    ) -> Result<Self, ConnectionError> {
        let checked = reply::check(message.body(), Stage::Operation);
        let outcome = match &checked {
            // A successful reply has no effect, so it does not lock the topology.
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

    /// Returns the BSON document of the reply.
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

    /// Returns the write concern error, or the error of a legacy getLastError: the command has run,
    /// but may not be durable, or may not have reached every required member. Its effects on the
    /// topology have run.
    pub fn write_concern_error(&self) -> Option<&ServerError> {
        self.write_concern_error.as_ref()
    }

    /// Adds a label to the [`write_concern_error`](Self::write_concern_error), if any.
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

    /// Returns the effect on the topology of reporting the
    /// [`write_concern_error`](Self::write_concern_error).
    pub fn outcome(&self) -> ErrorOutcome {
        self.outcome
    }
}

/// The error of a connection that could not be established or broke, or the server's error in a
/// reply; already classified and reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionError {
    /// The cause, with the labels that the operation's error gets.
    pub error: ServerError,
    /// The effect of the report on the topology.
    pub outcome: ErrorOutcome,
    /// The reply to the command, if the server answered with the error.
    pub(super) reply: Option<Box<WireMessage>>,
}

impl ConnectionError {
    /// Creates the error of a command without a reply.
    pub fn new(error: ServerError, outcome: ErrorOutcome) -> Self {
        Self {
            error,
            outcome,
            reply: None,
        }
    }

    /// Returns the server's reply to the command, a BSON document whose `ok` is not 1; `None` if
    /// the connection could not be established, or broke. Without a reply it is unknown whether the
    /// command took effect.
    pub fn body(&self) -> Option<&[u8]> {
        self.reply.as_ref().map(|message| message.body())
    }

    /// Returns whether a time limit was exceeded.
    pub fn is_timeout(&self) -> bool {
        self.error.is_timeout()
    }

    /// Returns whether the connection could not be established or broke, including by an invalid
    /// reply.
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
