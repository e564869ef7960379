//! The program's end of simulated TLS.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use sdam_core::{
    address::ServerAddress,
    error::Stage,
    options::{ConfigError, TlsOptions},
    time::Instant,
};
use sdam_transport::{
    ByteStream, TransportError, async_trait,
    tls::{Tls, TlsProvider},
};

use super::{
    Certificate,
    handshake::{Alert, ClientHello, Finished, ServerHello},
    record::{self, Cipher, Content, HEADER, Keys, MAX_PAYLOAD},
};
use crate::runtime::Shared;

/// The TLS library of the simulated runtime.
#[derive(Debug)]
pub(in super::super) struct SimTls(pub(in super::super) Arc<Shared>);

impl TlsProvider for SimTls {
    fn tls(&self, options: &TlsOptions) -> Result<Arc<dyn Tls>, ConfigError> {
        let missing = |option: &str, file: &str| {
            let remedy = "create it by `Sim::tls`, or leave the option out";
            ConfigError::new(option, file, "the simulation has no such file", remedy)
        };
        let state = self.0.state();
        let files = &state.network.tls;
        let authority = match &options.ca_file {
            Some(file) => {
                let found = files.authorities.get(file).cloned();
                found.ok_or_else(|| missing("tlsCAFile", file))?
            }
            None => Certificate::AUTHORITY.into(),
        };
        let certificate = match &options.certificate_key_file {
            Some(file) => {
                let found = files.certificates.get(file).cloned();
                Some(found.ok_or_else(|| missing("tlsCertificateKeyFile", file))?)
            }
            None => None,
        };
        Ok(Arc::new(ClientTls {
            shared: Arc::clone(&self.0),
            authority,
            certificate,
            checks_certificate: !options.allow_invalid_certificates,
            checks_name: !options.allow_invalid_hostnames,
        }))
    }
}

/// TLS according to the options of a topology.
#[derive(Debug)]
struct ClientTls {
    shared: Arc<Shared>,
    /// The trusted authority.
    authority: Box<str>,
    /// The client's own certificate.
    certificate: Option<Certificate>,
    checks_certificate: bool,
    checks_name: bool,
}

#[async_trait]
impl Tls for ClientTls {
    async fn negotiate(
        &self,
        mut stream: Box<dyn ByteStream>,
        server: &ServerAddress,
    ) -> Result<Box<dyn ByteStream>, TransportError> {
        let nonce = self.shared.state().network.tls.nonce();
        let hello = ClientHello {
            server_name: server.host().into(),
            nonce,
        };
        send(&mut stream, &hello.encode()).await?;
        let answer = receive(&mut stream).await?;
        self.verify(&answer.certificate, server.host())?;
        let finished = Finished {
            certificate: self
                .certificate
                .clone()
                .filter(|_| answer.demands_certificate),
        };
        send(&mut stream, &finished.encode()).await?;
        let keys = Keys::new(nonce, answer.nonce);
        Ok(Box::new(TlsStream {
            inner: stream,
            to_server: keys.to_server,
            to_client: keys.to_client,
            incoming: Vec::new(),
            plain: io::Cursor::default(),
            outgoing: Vec::new(),
        }))
    }
}

impl ClientTls {
    fn verify(&self, certificate: &Certificate, host: &str) -> Result<(), TransportError> {
        let now = self.shared.state().now();
        let mut verdict = Ok(());
        if self.checks_certificate {
            verdict = certificate.verify(now, &self.authority);
        }
        if self.checks_name {
            verdict = verdict.and_then(|()| certificate.verify_name(host));
        }
        verdict.map_err(|flaw| {
            let message = "the server's certificate is rejected";
            TransportError::protocol(Stage::Tls, message).with_source(flaw)
        })
    }
}

async fn send(stream: &mut Box<dyn ByteStream>, bytes: &[u8]) -> Result<(), TransportError> {
    stream.write_all(bytes).await.map_err(broken)?;
    stream.flush().await.map_err(broken)
}

/// Reads the server's hello.
async fn receive(stream: &mut Box<dyn ByteStream>) -> Result<ServerHello, TransportError> {
    let mut header = [0; HEADER];
    // The first byte reveals plain text, which may be shorter than a header.
    stream.read_exact(&mut header[..1]).await.map_err(broken)?;
    if !record::is_header(&header[..1]) {
        let message = "the server answered in plain text";
        return Err(TransportError::protocol(Stage::Tls, message));
    }
    stream.read_exact(&mut header[1..]).await.map_err(broken)?;
    let mut payload = vec![0; record::payload_length(header)];
    stream.read_exact(&mut payload).await.map_err(broken)?;
    if header[0] == Content::Alert as u8 {
        return Err(rejected(&payload));
    }
    ServerHello::decode(&payload).ok_or_else(|| {
        let message = "the server's part of the TLS handshake is malformed";
        TransportError::protocol(Stage::Tls, message)
    })
}

fn broken(error: io::Error) -> TransportError {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server closed the connection in the TLS handshake",
        _ => "the connection broke in the TLS handshake",
    };
    TransportError::from_io(Stage::Tls, message, error)
}

fn rejected(alert: &[u8]) -> TransportError {
    let reason = Alert::describe(alert);
    let message = format!("the server rejects the TLS handshake: {reason}");
    TransportError::protocol(Stage::Tls, message)
}

/// An encrypted stream.
struct TlsStream {
    inner: Box<dyn ByteStream>,
    to_server: Cipher,
    to_client: Cipher,
    /// Bytes that do not form a whole record yet.
    incoming: Vec<u8>,
    /// Plain text that is not read yet.
    plain: io::Cursor<Vec<u8>>,
    /// Records that are not written yet.
    outgoing: Vec<u8>,
}

impl TlsStream {
    /// Writes all records.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.outgoing))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl ByteStream for TlsStream {
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.inner.set_deadline(deadline);
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            let read = io::Read::read(&mut this.plain, buffer)?;
            if read > 0 || buffer.is_empty() {
                return Poll::Ready(Ok(read));
            }
            match record::take(&mut this.incoming) {
                Ok(Some((Content::Data, mut payload))) => {
                    this.to_client.apply(&mut payload);
                    this.plain = io::Cursor::new(payload);
                    continue;
                }
                Ok(Some((Content::Alert, payload))) => {
                    return Poll::Ready(Err(io::Error::other(rejected(&payload))));
                }
                Ok(Some((Content::Handshake, _))) | Err(_) => {
                    let message = "the server sent no record of data";
                    let error = TransportError::protocol(Stage::Tls, message);
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                Ok(None) => {}
            }
            let mut space = [0; 1024];
            let read = ready!(Pin::new(&mut this.inner).poll_read(cx, &mut space))?;
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
            this.incoming.extend(&space[..read]);
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let length = bytes.len().min(MAX_PAYLOAD);
        let records = self.to_server.seal(&bytes[..length]);
        self.outgoing = records;
        // The rest is written by the next call.
        match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(length)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
