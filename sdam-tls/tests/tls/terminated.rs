//! Adds the server side of TLS to a server that does not support it.

use std::{
    io::{self, Read as _, Write as _},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_core::{address::ServerAddress, error::Error, time::Instant};
use sdam_tls::rustls::{ServerConfig, ServerConnection};
use sdam_transport::{async_trait, stream::ByteStream, tls::Tls};

/// Adds TLS to a server that does not support it, by decrypting the client's data and encrypting
/// the server's answers.
#[derive(Debug)]
pub(crate) struct Terminating {
    pub(crate) tls: Arc<dyn Tls>,
    pub(crate) config: Arc<ServerConfig>,
}

#[async_trait]
impl Tls for Terminating {
    async fn negotiate(
        &self,
        stream: Box<dyn ByteStream>,
        server: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, Error> {
        let terminated = Terminated {
            stream,
            session: ServerConnection::new(Arc::clone(&self.config)).unwrap(),
            plain: Vec::new(),
            ended: false,
        };
        self.tls.negotiate(Box::new(terminated), server).await
    }
}

#[derive(Debug)]
struct Terminated {
    /// The connection to the server.
    stream: Box<dyn ByteStream>,
    session: ServerConnection,
    /// Decrypted data that has not been sent yet.
    plain: Vec<u8>,
    ended: bool,
}

impl Terminated {
    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.plain.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.plain))?;
            self.plain.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl ByteStream for Terminated {
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.stream.set_deadline(deadline);
    }
}

impl AsyncWrite for Terminated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pass_on(cx))?;
        let this = &mut *self;
        let read = this.session.read_tls(&mut bytes)?;
        let state = this.session.process_new_packets().unwrap();
        let filled = this.plain.len();
        this.plain.resize(filled + state.plaintext_bytes_to_read(), 0);
        this.session.reader().read_exact(&mut this.plain[filled..])?;
        Poll::Ready(Ok(read))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pass_on(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pass_on(cx))?;
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

impl AsyncRead for Terminated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let mut plain = [0; 16 << 10];
        loop {
            let written = this.session.write_tls(&mut space)?;
            if written > 0 || this.ended {
                return Poll::Ready(Ok(written));
            }
            assert!(!this.session.is_handshaking(), "the client has to send first");
            let read = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut plain))?;
            this.ended = read == 0;
            this.session.writer().write_all(&plain[..read])?;
        }
    }
}
