//! The error of transports and resolvers.

use std::{error::Error, fmt, io, sync::Arc};

use sdam_core::{
    address::ServerAddress,
    app_error::AppError,
    error::{ErrorKind, ErrorSource, ServerError, Stage},
    ids::Generation,
};

use crate::wire::WireError;

/// The error of opening or using a connection, or of looking up a name.
///
/// Cheap to clone. `Display` is one line: the server if known, kind and stage, the attempted action
/// and all causes; `Debug` is the same. Therefore [`Error::source`] returns `None`; use
/// [`source_as`](Self::source_as) for the original error.
#[derive(Clone)]
pub struct TransportError {
    kind: ErrorKind,
    stage: Stage,
    target: Option<ServerAddress>,
    message: Arc<str>,
    source: ErrorSource,
}

impl TransportError {
    /// Creates a network error: a connection could not be opened, or broke.
    pub fn network(stage: Stage, message: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Network, stage, message)
    }

    /// Creates a timeout error.
    pub fn timeout(stage: Stage, message: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Timeout, stage, message)
    }

    /// Creates a protocol error: malformed bytes, a message out of order, or at [`Stage::Tls`] an
    /// untrusted certificate or host name.
    pub fn protocol(stage: Stage, message: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Protocol, stage, message)
    }

    /// Converts an I/O error; `message` describes the attempted action.
    ///
    /// It is a timeout if the runtime's own deadline caused `source`. If the operating system
    /// reports `ETIMEDOUT` on an established connection, the peer has acknowledged nothing for
    /// minutes: the connection is broken, not slow.
    ///
    /// A `TransportError` inside `source` is returned unchanged. A stream returns one if it knows
    /// the cause, such as a client certificate that the server rejected.
    ///
    /// At [`Stage::Tls`] it is a protocol error if `source` has a kind that TLS libraries use for a
    /// bad certificate or host name: `InvalidData`, `InvalidInput` or `Other`.
    pub fn from_io(stage: Stage, message: impl Into<Arc<str>>, source: io::Error) -> Self {
        if let Some(inner) = source
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Self>())
        {
            return inner.clone();
        }
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
        Self::new(kind, stage, message).with_source(source)
    }

    /// Converts an error of the wire codec: malformed bytes, or a message out of order.
    pub fn from_wire(stage: Stage, source: WireError) -> Self {
        Self::protocol(stage, "the message violates the wire protocol").with_source(source)
    }

    /// Appends the text and the causes of `source` to the message, and stores `source`.
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
        self.source = source.into();
        self
    }

    /// Stores `source`, whose text and causes are already in the message.
    #[must_use]
    pub fn with_cause(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = source.into().into();
        self
    }

    /// Puts `context` before the message.
    pub(crate) fn within(mut self, context: &str) -> Self {
        self.message = format!("{context}: {}", self.message).into();
        self
    }

    /// Adds the server address `target`, which `Display` then shows.
    #[must_use]
    pub fn with_target(mut self, target: &ServerAddress) -> Self {
        self.target = Some(target.clone());
        self
    }

    /// Replaces the stage, for callers that know the purpose of the connection.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// Returns the kind of error: network, timeout or protocol.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the stage at which connecting or talking to the server failed.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the attempted action and all causes of the failure, without server, kind and stage.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the error that was last passed to [`with_source`](Self::with_source) or
    /// [`with_cause`](Self::with_cause), if it is an `E`. A [`ServerError`] converted from this
    /// error has it as well.
    pub fn source_as<E: Error + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }

    /// Returns whether it is a timeout.
    pub fn is_timeout(&self) -> bool {
        self.kind == ErrorKind::Timeout
    }

    /// Returns the report of a pool about its connection of `generation`, with this kind and stage.
    ///
    /// For an error during authentication or an operation, set the stage first: see
    /// [`at`](Self::at). The operation's own error also gets the [labels](AppError::labels).
    pub fn app_error(&self, generation: Generation) -> AppError<'_> {
        let mut report = match self.kind {
            ErrorKind::Network => AppError::network(generation, self.stage, &*self.message),
            ErrorKind::Timeout => AppError::timeout(generation, self.stage, &*self.message),
            _ => AppError::protocol(generation, self.stage, &*self.message),
        };
        report.source = self.source.clone();
        report
    }

    pub(crate) fn new(kind: ErrorKind, stage: Stage, message: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            stage,
            target: None,
            message: message.into(),
            source: ErrorSource::default(),
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
    /// Converts to plain data for descriptions and events, which contain the server themselves.
    fn from(error: &TransportError) -> Self {
        let mut plain = Self::new(error.kind, error.stage, &*error.message);
        plain.source = error.source.clone();
        plain
    }
}

impl From<TransportError> for ServerError {
    fn from(error: TransportError) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests;
