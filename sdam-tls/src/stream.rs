//! The encrypted stream.

use std::{
    io::{self, Read, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead, AsyncWrite};
use rustls::ClientConnection;
use sdam_core::time::Instant;
use sdam_transport::stream::ByteStream;

use crate::client::{Errors, is_closed};

/// A TLS session over a stream whose reads either block or may be pending.
///
/// Reads from the stream only after all queued data has been sent and all received data has been
/// consumed. A poll of a blocking stream therefore returns as soon as there is data.
#[derive(Debug)]
pub(crate) struct TlsStream {
    io: Box<dyn ByteStream>,
    session: ClientConnection,
    errors: Errors,
    /// True once data from the server has arrived, because the server sends data only after it has
    /// accepted the client.
    accepted: bool,
}

impl TlsStream {
    pub(crate) fn new(io: Box<dyn ByteStream>, session: ClientConnection, errors: Errors) -> Self {
        Self { io, session, errors, accepted: false }
    }

    pub(crate) fn session(&self) -> &ClientConnection {
        &self.session
    }

    /// Continues the handshake until data may be sent, and sends all queued data.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_sent(cx))?;
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_received(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Passes all queued data to the stream.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut io = Polled(&mut self.io, cx);
        while self.session.wants_write() {
            match self.session.write_tls(&mut io) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and returns the number of encrypted bytes.
    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = match self.session.read_tls(&mut Polled(&mut self.io, cx)) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if let Err(error) = self.session.process_new_packets() {
            // Send the alert that tells the server the reason, if that is possible without waiting.
            if self.poll_sent(cx).is_ready() {
                let _ = Pin::new(&mut self.io).poll_flush(cx);
            }
            let error =
                if self.accepted { self.errors.broken(error) } else { self.errors.refused(error) };
            return Poll::Ready(Err(io::Error::other(error)));
        }
        Poll::Ready(Ok(read))
    }

    /// Returns the reason why the server closed the connection before it sent data, or `None` if
    /// the reason is not known.
    fn rejected(&self) -> Option<io::Error> {
        let rejected = (!self.accepted).then(|| self.errors.rejected("after"))?;
        rejected.map(io::Error::other)
    }

    /// Returns the cause of a failed write. A server that rejects the client sends an alert before
    /// it resets the connection. If a rejection is the cause, its alert has therefore already
    /// arrived.
    fn write_failed(&mut self, cx: &mut Context<'_>, error: io::Error) -> io::Error {
        if self.accepted || !is_closed(&error) {
            return error;
        }
        match self.poll_received(cx) {
            Poll::Ready(Err(alert)) if !is_closed(&alert) => alert,
            _ => self.rejected().unwrap_or(error),
        }
    }
}

impl ByteStream for TlsStream {
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.io.set_deadline(deadline);
    }
}

impl AsyncRead for TlsStream {
    /// Reads data. A connection that is closed without a TLS closing message counts as ended, which
    /// is safe because messages declare their length, so a truncated message is detected.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let read = match self.session.reader().read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match ready!(self.poll_received(cx)) {
                        Ok(_) => continue,
                        Err(error) if is_closed(&error) => {
                            return Poll::Ready(Err(self.rejected().unwrap_or(error)));
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                read => read?,
            };
            return match self.rejected() {
                Some(error) if read == 0 && !space.is_empty() => Poll::Ready(Err(error)),
                _ => {
                    self.accepted |= read > 0;
                    Poll::Ready(Ok(read))
                }
            };
        }
    }
}

impl AsyncWrite for TlsStream {
    /// Encrypts part of `bytes` once all earlier writes have been sent.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_sent(cx)) {
            Ok(()) => Poll::Ready(self.session.writer().write(bytes)),
            Err(error) => Poll::Ready(Err(self.write_failed(cx, error))),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = match ready!(self.poll_sent(cx)) {
            Ok(()) => ready!(Pin::new(&mut self.io).poll_flush(cx)),
            failed => failed,
        };
        Poll::Ready(sent.map_err(|error| self.write_failed(cx, error)))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        ready!(self.poll_sent(cx))?;
        Pin::new(&mut self.io).poll_close(cx)
    }
}

/// A stream with the traits of `std`. An operation that is pending returns the error `WouldBlock`.
struct Polled<'s, 'c, 'w>(&'s mut Box<dyn ByteStream>, &'c mut Context<'w>);

impl Read for Polled<'_, '_, '_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        ready_or_would_block(Pin::new(&mut *self.0).poll_read(self.1, space))
    }
}

impl Write for Polled<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        ready_or_would_block(Pin::new(&mut *self.0).poll_write(self.1, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        ready_or_would_block(Pin::new(&mut *self.0).poll_flush(self.1))
    }
}

fn ready_or_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
