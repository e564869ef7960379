//! What a seam reports when it fails.

use std::{
    error::Error,
    fmt::{self, Write as _},
    io,
    sync::Arc,
};

use sdam_core::error::{ErrorKind, ServerError, Stage};

use crate::wire::WireError;

/// Why a connection could not be opened or used, or a name not be looked up.
///
/// Opaque and cheap to clone.
/// `Display` prints this level alone and [`source`](Error::source) leads to the next, whose type is
/// no promise.
#[derive(Clone)]
pub struct TransportError {
    inner: Arc<Inner>,
    /// Outside the `Arc`, so that a caller who knows better can restate it.
    stage: Stage,
}

struct Inner {
    kind: ErrorKind,
    message: Box<str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// A connection that could not be opened, or broke.
    pub fn network(stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Network, stage, message.into(), None)
    }

    /// An attempt that took longer than allowed.
    pub fn timeout(stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Timeout, stage, message.into(), None)
    }

    /// Bytes that are no message, or a message out of turn.
    pub fn protocol(stage: Stage, message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Protocol, stage, message.into(), None)
    }

    /// An error of the operating system while the caller did what `message` says.
    ///
    /// It is a time-out if `source` is one that the runtime's own deadline brought about.
    /// Where the operating system reports `ETIMEDOUT` on an established connection, it has given up
    /// a peer that acknowledged nothing for minutes: such a connection is broken, not slow.
    pub fn from_io(stage: Stage, message: impl Into<Box<str>>, source: io::Error) -> Self {
        let own = source.raw_os_error().is_none() || stage <= Stage::Connect;
        let kind = if source.kind() == io::ErrorKind::TimedOut && own {
            ErrorKind::Timeout
        } else {
            ErrorKind::Network
        };
        Self::new(kind, stage, message.into(), Some(source.into()))
    }

    /// Bytes that are no message, or a message out of turn, as the codec reports them.
    pub fn from_wire(stage: Stage, source: WireError) -> Self {
        Self::protocol(stage, "the conversation broke the wire protocol").with_source(source)
    }

    /// The same error, caused by `source`.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let message = self.inner.message.clone();
        Self::new(self.inner.kind, self.stage, message, Some(source.into()))
    }

    /// The same error at another stage, for callers who know what the connection was used for.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// What kind of error it is: network, time-out or protocol.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// How far the conversation with the server had come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether time ran out.
    pub fn is_timeout(&self) -> bool {
        self.inner.kind == ErrorKind::Timeout
    }

    fn new(
        kind: ErrorKind,
        stage: Stage,
        message: Box<str>,
        source: Option<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                message,
                source,
            }),
            stage,
        }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportError")
            .field("kind", &self.inner.kind)
            .field("stage", &self.stage)
            .field("message", &self.inner.message)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner
            .source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}

impl From<&TransportError> for ServerError {
    /// Plain data for descriptions and events; the message joins those of all sources.
    fn from(error: &TransportError) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            // Writing to a string cannot fail.
            let _ = write!(message, ": {error}");
            source = error.source();
        }
        Self::new(error.kind(), error.stage(), message)
    }
}

impl From<TransportError> for ServerError {
    fn from(error: TransportError) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timeout_of_ours_or_of_connecting_is_a_timeout() {
        let check = |stage, error: io::Error, kind| {
            assert_eq!(TransportError::from_io(stage, "x", error).kind(), kind);
        };
        let own = || io::Error::from(io::ErrorKind::TimedOut);
        check(Stage::Connect, own(), ErrorKind::Timeout);
        check(Stage::Hello, own(), ErrorKind::Timeout);
        for refused in [
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::WouldBlock,
            io::ErrorKind::Interrupted,
        ] {
            check(Stage::Hello, refused.into(), ErrorKind::Network);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_peer_that_the_system_gives_up_is_a_broken_connection() {
        let system = || io::Error::from_raw_os_error(110);
        assert_eq!(system().kind(), io::ErrorKind::TimedOut);
        let kind = |stage| TransportError::from_io(stage, "x", system()).kind();
        assert_eq!(kind(Stage::Connect), ErrorKind::Timeout);
        assert_eq!(kind(Stage::Hello), ErrorKind::Network);
    }

    #[test]
    fn display_is_one_level_and_plain_data_is_the_whole_chain() {
        let inner = TransportError::network(Stage::Connect, "refused").with_source("by peer");
        let error = TransportError::network(Stage::Connect, "connecting to a:1").with_source(inner);
        assert_eq!(error.to_string(), "connecting to a:1");
        let plain = ServerError::from(&error.at(Stage::Tls));
        assert_eq!(plain.kind, ErrorKind::Network);
        assert_eq!(plain.stage, Stage::Tls);
        assert_eq!(&*plain.message, "connecting to a:1: refused: by peer");
    }
}
