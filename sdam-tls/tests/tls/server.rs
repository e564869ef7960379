//! A stream whose other end is a server on the same thread.

use std::{
    io::{self, Read, Write},
    mem,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use futures::io::{AsyncRead, AsyncWrite};
use sdam_tls::rustls::{
    self, HandshakeKind, ServerConfig, ServerConnection, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use sdam_transport::stream::ByteStream;

use crate::certificates::{Authority, Issued, crypto};

/// The server's end of a [`Wire`].
#[derive(Debug)]
pub(crate) enum Peer {
    /// Echoes the data that it decrypts.
    Tls(Box<ServerConnection>),
    /// Closes the connection when the client's last handshake message arrives.
    Rejecting(Box<ServerConnection>),
    /// Sends these bytes and closes the connection.
    Plain(Vec<u8>),
    /// Never answers.
    Silent,
}

/// The observed actions of both ends.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) kind: Option<HandshakeKind>,
    pub(crate) server_name: Option<String>,
    /// The reason why the server ended the connection, such as an alert from the client.
    pub(crate) failure: Option<rustls::Error>,
    /// True if the client announced that it was closing the connection.
    pub(crate) notified: bool,
}

/// The behaviour of a read when there is no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Pending,
    /// The read times out, as on a blocking stream.
    Blocks,
    /// The read is pending, and so is every second read, write and flush.
    Hesitates,
}

/// A stream to a server that answers while the client polls.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) peer: Peer,
    pub(crate) waiting: Waiting,
    pub(crate) was_pending: [bool; 3],
    /// The number of bytes after which the server ends the connection, and a flag that is true if
    /// the server announces the end.
    pub(crate) ending: Option<(usize, bool)>,
    /// Bytes that the server receives when the stream is flushed.
    pub(crate) unflushed: Vec<u8>,
    /// True if the server has ended the connection.
    pub(crate) ended: bool,
    /// True if writes fail once the server has ended the connection.
    pub(crate) resets: bool,
    /// The maximum length of a single write or read.
    pub(crate) chunk: usize,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

impl Wire {
    pub(crate) fn new(peer: Peer) -> Self {
        Self {
            peer,
            waiting: Waiting::Pending,
            was_pending: [false; 3],
            ending: None,
            unflushed: Vec::new(),
            ended: false,
            resets: false,
            chunk: usize::MAX,
            seen: Arc::default(),
        }
    }

    pub(crate) fn tls(config: &Arc<ServerConfig>) -> Self {
        Self::new(Peer::Tls(session(config)))
    }

    pub(crate) fn rejecting(config: &Arc<ServerConfig>) -> Self {
        Self::new(Peer::Rejecting(session(config)))
    }

    pub(crate) fn seen(&self) -> Arc<Mutex<Seen>> {
        Arc::clone(&self.seen)
    }

    /// Passes `bytes` from the client to the server.
    fn feed(&mut self, mut bytes: &[u8]) {
        let rejects = matches!(self.peer, Peer::Rejecting(_));
        let (Peer::Tls(session) | Peer::Rejecting(session)) = &mut self.peer else {
            return;
        };
        let mut seen = self.seen.lock().unwrap();
        let mut echoed = 0;
        while !bytes.is_empty() {
            session.read_tls(&mut bytes).unwrap();
            match session.process_new_packets() {
                Ok(state) => seen.notified = state.peer_has_closed(),
                Err(error) => {
                    seen.failure = Some(error);
                    self.ended = true;
                    return;
                }
            }
            if !rejects {
                echoed += echo(session);
            }
        }
        seen.kind = session.handshake_kind();
        seen.server_name = session.server_name().map(str::to_owned);
        self.ended = rejects && !session.is_handshaking();
        if let Some((bytes, with_notice)) = &mut self.ending {
            *bytes = bytes.saturating_sub(echoed);
            self.ended = *bytes == 0;
            if self.ended && *with_notice {
                session.send_close_notify();
            }
        }
    }

    /// Returns whether this poll should be pending.
    fn hesitate(&mut self, kind: usize, cx: &Context<'_>) -> bool {
        let was_pending = &mut self.was_pending[kind];
        *was_pending = self.waiting == Waiting::Hesitates && !*was_pending;
        if *was_pending {
            cx.waker().wake_by_ref();
        }
        *was_pending
    }
}

fn echo(session: &mut ServerConnection) -> usize {
    let mut data = [0; 4096];
    let mut echoed = 0;
    while let Ok(read @ 1..) = session.reader().read(&mut data) {
        session.writer().write_all(&data[..read]).unwrap();
        echoed += read;
    }
    echoed
}

impl ByteStream for Wire {}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.hesitate(0, cx) {
            return Poll::Pending;
        }
        let (chunk, ended) = (self.chunk.min(space.len()), self.ended);
        let mut space = &mut space[..chunk];
        let read = match &mut self.peer {
            Peer::Rejecting(_) if ended => 0,
            Peer::Tls(session) | Peer::Rejecting(session) => session.write_tls(&mut space)?,
            Peer::Plain(bytes) => {
                let read = bytes.len().min(chunk);
                space.write_all(&bytes[..read])?;
                bytes.drain(..read);
                self.ended = true;
                read
            }
            Peer::Silent => 0,
        };
        match read {
            0 if self.ended => Poll::Ready(Ok(0)),
            0 if self.waiting == Waiting::Blocks => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            0 => Poll::Pending,
            read => Poll::Ready(Ok(read)),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.hesitate(1, cx) {
            return Poll::Pending;
        }
        if self.ended && self.resets {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let bytes = &bytes[..self.chunk.min(bytes.len())];
        self.unflushed.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.hesitate(2, cx) {
            return Poll::Pending;
        }
        let bytes = mem::take(&mut self.unflushed);
        if !self.ended {
            self.feed(&bytes);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

fn session(config: &Arc<ServerConfig>) -> Box<ServerConnection> {
    let mut session = Box::new(ServerConnection::new(Arc::clone(config)).unwrap());
    // Without a limit, the whole echo of a message can be queued.
    session.set_buffer_limit(None);
    session
}

/// Returns the configuration of a server that requires no client certificate.
pub(crate) fn serve(issued: &Issued) -> Arc<ServerConfig> {
    serve_with(issued, None, &[&TLS13, &TLS12])
}

/// Returns the configuration of a server that requires a client certificate issued by `clients`.
pub(crate) fn serve_clients_of(
    issued: &Issued,
    clients: &Authority,
    version: &'static SupportedProtocolVersion,
) -> Arc<ServerConfig> {
    let verifier = WebPkiClientVerifier::builder_with_provider(clients.roots(), crypto());
    serve_with(issued, Some(verifier.build().unwrap()), &[version])
}

/// Returns the configuration of a server that requests a certificate and accepts clients without
/// one.
pub(crate) fn serve_asking(
    issued: &Issued,
    clients: &Authority,
    version: &'static SupportedProtocolVersion,
) -> Arc<ServerConfig> {
    let verifier = WebPkiClientVerifier::builder_with_provider(clients.roots(), crypto());
    let verifier = verifier.allow_unauthenticated().build();
    serve_with(issued, Some(verifier.unwrap()), &[version])
}

pub(crate) fn serve_with(
    issued: &Issued,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let config =
        ServerConfig::builder_with_provider(crypto()).with_protocol_versions(versions).unwrap();
    let config = match clients {
        Some(verifier) => config.with_client_cert_verifier(verifier),
        None => config.with_no_client_auth(),
    };
    let chain = vec![issued.certificate()];
    Arc::new(config.with_single_cert(chain, issued.key()).unwrap())
}

/// Returns the configuration of a server that presents any certificate for a key, both in PEM, even
/// one that a server of this library would refuse.
pub(crate) fn serve_pem(certificate: &str, key: &str) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let key = crypto().key_provider.load_private_key(key).unwrap();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let certified = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let config =
        ServerConfig::builder_with_provider(crypto()).with_safe_default_protocol_versions();
    Arc::new(config.unwrap().with_no_client_auth().with_cert_resolver(Arc::new(certified)))
}
