//! What a seam reports when it fails.

use std::{error::Error, fmt, io, sync::Arc};

use sdam_core::{
    address::ServerAddress,
    app_error::{Cause, Phase},
    error::{ErrorKind, ServerError, Stage},
};

use crate::wire::WireError;

/// Why a connection could not be opened or used, or a name not be looked up.
///
/// Cheap to clone. `Display` is one line: the server where it is known, kind and stage, what was
/// attempted and every cause of that; `Debug` is the same line. Since the line holds all causes,
/// there is no [`source`](Error::source).
#[derive(Clone)]
pub struct TransportError {
    kind: ErrorKind,
    stage: Stage,
    target: Option<ServerAddress>,
    message: Arc<str>,
}

impl TransportError {
    /// A connection that could not be opened, or broke.
    pub fn network(stage: Stage, message: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Network, stage, message.into())
    }

    /// An attempt that took longer than allowed.
    pub fn timeout(stage: Stage, message: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Timeout, stage, message.into())
    }

    /// An answer that cannot be accepted: bytes that are no message, a message out of turn, and at
    /// [`Stage::Tls`] a certificate or host name that is not to be trusted.
    pub fn protocol(stage: Stage, message: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Protocol, stage, message.into())
    }

    /// An error of the operating system while the caller did what `message` says.
    ///
    /// It is a time-out if `source` is one that the runtime's own deadline has caused.
    /// Where the operating system reports `ETIMEDOUT` on an established connection, it has given up
    /// a peer that acknowledged nothing for minutes: such a connection is broken, not slow.
    ///
    /// At [`Stage::Tls`] it is a protocol error if `source` is what TLS libraries report of a
    /// certificate or host name in this guise: `InvalidData`, `InvalidInput` or `Other`.
    pub fn from_io(stage: Stage, message: impl Into<Arc<str>>, source: io::Error) -> Self {
        let own = source.raw_os_error().is_none();
        let kind = match source.kind() {
            io::ErrorKind::TimedOut if own || stage <= Stage::Connect => ErrorKind::Timeout,
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other
                if own && stage == Stage::Tls =>
            {
                ErrorKind::Protocol
            }
            _ => ErrorKind::Network,
        };
        Self::new(kind, stage, message.into()).with_source(source)
    }

    /// Bytes that are no message, or a message out of turn, as the codec reports them.
    pub fn from_wire(stage: Stage, source: WireError) -> Self {
        Self::protocol(stage, "the conversation broke the wire protocol").with_source(source)
    }

    /// The same error, caused by `source`, whose text and causes are appended to the message.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = source.into();
        let mut text = format!("{}: {source}", self.message);
        let mut next = source.source();
        while let Some(error) = next {
            text.extend([": ", &error.to_string()]);
            next = error.source();
        }
        self.message = text.into();
        self
    }

    /// The same error of a connection to `target`, which its text then names.
    #[must_use]
    pub fn with_target(mut self, target: &ServerAddress) -> Self {
        self.target = Some(target.clone());
        self
    }

    /// The same error at another stage, for callers who know what the connection was used for.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// What kind of error it is: network, time-out or protocol.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// How far the conversation with the server had come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// What was attempted and every cause of its failure, without server, kind and stage.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether time ran out.
    pub fn is_timeout(&self) -> bool {
        self.kind == ErrorKind::Timeout
    }

    /// What a pool reports of its connection that has come as far as `phase`, with the labels that
    /// the error of the operation gets, too: see [`Cause::of_connection`].
    pub fn cause(&self, phase: Phase) -> Cause<'_> {
        Cause::of_connection(phase, self.kind, self.stage, &self.message)
    }

    fn new(kind: ErrorKind, stage: Stage, message: Arc<str>) -> Self {
        Self {
            kind,
            stage,
            target: None,
            message,
        }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(target) = &self.target {
            write!(f, "{target}: ")?;
        }
        ServerError::from(self).fmt(f)
    }
}

impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for TransportError {}

impl From<&TransportError> for ServerError {
    /// Plain data for descriptions and events, which name the server themselves.
    fn from(error: &TransportError) -> Self {
        Self::new(error.kind, error.stage, &*error.message)
    }
}

impl From<TransportError> for ServerError {
    fn from(error: TransportError) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests;
