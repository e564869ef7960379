//! A connection that frames wire messages over a byte stream.

use std::{
    borrow::Cow,
    fmt,
    future::poll_fn,
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use async_trait::async_trait;
use futures::io::AsyncWriteExt;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    hello::Hello,
    time::Instant,
};

use crate::{
    connect::Connection,
    error,
    stream::ByteStream,
    wire::{Header, WireError, WireMessage},
};

#[cfg(test)]
mod tests;

/// A [`Connection`] over a [`ByteStream`].
///
/// The connection is marked as unusable while it sends or receives, and only success removes the
/// mark. After a future has failed, or has been dropped before it was ready, every later call
/// therefore fails, and cancellation can never make the middle of a message look like the start of
/// the next one. A receive sets the mark only once a reply is due or a byte has arrived, so that an
/// idle connection can be checked.
///
/// Errors have [`Stage::Hello`], which is correct for monitoring connections. Users of other
/// connections set the stage with [`Error::at`].
pub struct Framed<S> {
    stream: S,
    /// The reason why no operation may begin: another one is in progress, was dropped or has
    /// failed.
    unusable: Option<Cow<'static, str>>,
    /// True if the server has yet to answer, or to continue a stream.
    is_reply_due: bool,
    max_message_size: usize,
    target: Option<ServerAddress>,
    /// Bytes that have been read but not returned yet. They may be part of a message or several
    /// messages.
    received: Vec<u8>,
}

impl<S: ByteStream> Framed<S> {
    /// Creates a connection over `stream`, on which nothing has been read or written yet.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            unusable: None,
            is_reply_due: false,
            max_message_size: Hello::DEFAULT_MAX_MESSAGE_SIZE,
            target: None,
            received: Vec::new(),
        }
    }

    /// Adds the server address `target` to errors.
    #[must_use]
    pub(crate) fn with_target(mut self, target: &ServerAddress) -> Self {
        self.target = Some(target.clone());
        self
    }

    /// Begins an operation. Until the operation ends, the connection is unusable, and any other
    /// call fails with `dropped` as the reason.
    fn begin(&mut self, dropped: &'static str) -> Result<(), Error> {
        if let Some(reason) = &self.unusable {
            let message = format!("the connection is unusable, because {reason}");
            return Err(self.named(Error::network(STAGE, message)));
        }
        self.unusable = Some(dropped.into());
        Ok(())
    }

    fn end<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        let failed = result.as_ref().err();
        let reason = failed.map(|error| format!("it has failed before: {}", error.message()));
        self.unusable = reason.map(Cow::Owned);
        result.map_err(|error| self.named(error))
    }

    fn named(&self, error: Error) -> Error {
        match &self.target {
            Some(target) => error.with_address(target),
            None => error,
        }
    }

    async fn write(&mut self, message: &WireMessage) -> Result<(), Error> {
        let bytes = message.as_bytes();
        let failed = |error| {
            let message = format!("sending a message of {} bytes", bytes.len());
            error::from_io(STAGE, message, error)
        };
        self.stream.write_all(bytes).await.map_err(failed)?;
        self.stream.flush().await.map_err(failed)
    }

    async fn read(&mut self) -> Result<WireMessage, Error> {
        let mut wanted = self.wanted()?;
        while self.received.len() < wanted {
            self.fill(wanted).await?;
            wanted = self.wanted()?;
        }
        let rest = self.received.split_off(wanted);
        WireMessage::decode(mem::replace(&mut self.received, rest)).map_err(invalid)
    }

    /// Returns the length of the message, or the length of a header if the header has not been
    /// received yet.
    fn wanted(&self) -> Result<usize, Error> {
        let Some(header) = self.received.first_chunk() else {
            return Ok(Header::LENGTH);
        };
        let declared = Header::decode(header).map_err(invalid)?.message_length();
        // The length is checked before memory is allocated, because the bytes may be the greeting
        // of another protocol.
        let limit = self.max_message_size;
        if declared > limit {
            return Err(invalid(WireError::LengthAboveLimit { declared, limit }));
        }
        Ok(declared)
    }

    /// Reads once. Callers repeat this until at least `wanted` bytes have been received.
    async fn fill(&mut self, wanted: usize) -> Result<(), Error> {
        let result = poll_fn(|cx| self.poll_read(wanted, cx)).await;
        let filled = self.received.len();
        match result {
            Ok(0) => {
                let part = if filled < Header::LENGTH { "header" } else { "message" };
                let when = match filled {
                    0 => "while a message was expected".into(),
                    _ => format!("after {filled} of {wanted} bytes of a {part}"),
                };
                Err(Error::network(STAGE, format!("the server closed the connection {when}")))
            }
            Ok(_) => {
                self.unusable = Some(DROPPED_RECEIVE.into());
                Ok(())
            }
            Err(error) => {
                let message = format!("receiving a message ({filled} bytes had arrived)");
                Err(error::from_io(STAGE, message, error))
            }
        }
    }

    /// Reads once. May read more than `wanted` bytes, which saves a system call for the header of
    /// each message.
    ///
    /// The first bytes of a message are read into a buffer on the stack. Streaming connections
    /// spend most of their time waiting for these bytes, and thus need no memory on the heap
    /// meanwhile.
    fn poll_read(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let (stream, received) = (Pin::new(&mut self.stream), &mut self.received);
        let filled = received.len();
        if filled == 0 {
            let mut space = [0; READ_AHEAD];
            let read = ready!(stream.poll_read(cx, &mut space))?;
            received.extend_from_slice(space.get(..read).unwrap_or_default());
            return Poll::Ready(Ok(read));
        }
        let missing = wanted.saturating_sub(filled);
        received.resize(filled + missing.clamp(READ_AHEAD, MAX_READ), 0);
        let result = stream.poll_read(cx, received.get_mut(filled..).unwrap_or_default());
        let read = match &result {
            Poll::Ready(Ok(read)) => *read,
            _ => 0,
        };
        received.truncate(filled + read);
        result
    }
}

#[async_trait]
impl<S: ByteStream> Connection for Framed<S> {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        self.begin("a send was dropped before it was complete")?;
        self.is_reply_due |= !message.more_to_come();
        let result = self.write(&message).await;
        self.end(result)
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        self.begin(DROPPED_RECEIVE)?;
        if !self.is_reply_due && self.received.is_empty() {
            self.unusable = None;
        }
        match self.read().await {
            // The stream blocks, and nothing has arrived on the idle connection.
            Err(error) if self.unusable.is_none() && error.is_timeout() => Err(self.named(error)),
            result => {
                self.is_reply_due = result.as_ref().is_ok_and(WireMessage::more_to_come);
                self.end(result)
            }
        }
    }

    fn set_max_message_size(&mut self, bytes: usize) {
        self.max_message_size = bytes;
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.stream.set_deadline(deadline);
    }
}

impl<S: fmt::Debug> fmt::Debug for Framed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Framed")
            .field("stream", &self.stream)
            .field("unusable", &self.unusable)
            .field("received", &self.received.len())
            .finish_non_exhaustive()
    }
}

fn invalid(error: WireError) -> Error {
    error::from_wire(STAGE, error)
}

const STAGE: Stage = Stage::Hello;
const DROPPED_RECEIVE: &str = "a receive was dropped before it was complete";
/// The minimum length of a read. It is twice the length of a typical hello reply, so that one read
/// usually gets the whole reply.
const READ_AHEAD: usize = 2 << 10;
/// The maximum length of one read. This limit makes memory grow with the bytes received instead of
/// the announced length.
const MAX_READ: usize = 64 << 10;
