//! Servers on loopback with scripted answers.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bson::{Document, doc};
use sdam::tls::rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use sdam_live::{Certificates, ServerCertificate};
use sdam_transport::wire::{OpCode, OpMsg, OpReply, WireMessage};
use tokio::{net::TcpSocket, runtime::Builder};

/// A server that handles each connection on a thread of its own, until the value is dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that calls `serve` with each connection.
    pub(super) fn start(
        listener: TcpListener,
        serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, serve) = (Arc::clone(&is_over), Arc::new(serve));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let serve = Arc::clone(&serve);
                // The thread ends when the client closes the connection.
                thread::spawn(move || stream.and_then(|stream| serve(stream)));
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }

    /// Starts a server that answers every command with `reply`.
    pub(super) fn mongod(
        listener: TcpListener,
        reply: impl Fn() -> Document + Send + Sync + 'static,
    ) -> Self {
        Self::start(listener, move |stream| converse(stream, &reply))
    }

    /// Starts a server that answers like a standalone server behind TLS.
    pub(super) fn tls(certificates: &Certificates, certificate: ServerCertificate) -> Self {
        let config = tls_server(certificates, certificate);
        Self::start(listener(), move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
            converse(StreamOwned::new(session, stream), &standalone)
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Connect to wake the accepting thread. If that fails, the listener has failed, too.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Starts a server that requires a client certificate for connections with TLS, and also accepts
/// connections without TLS, like `mongod --tlsMode preferTLS`.
pub(super) fn tls_for_clients_with_certificate(certificates: &Certificates) -> Server {
    let config = tls_server_with_clients(certificates);
    Server::start(listener(), move |stream| {
        let mut first = [0];
        stream.peek(&mut first)?;
        if first != [22] {
            return converse(stream, &standalone);
        }
        let session = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        converse(StreamOwned::new(session, stream), &standalone)
    })
}

/// A port that drops the packets of new connections because its accept queue is full.
#[derive(Debug)]
pub(in crate::doctor) struct Dropping {
    pub(in crate::doctor) address: SocketAddr,
    _queued: Vec<TcpStream>,
    _listener: tokio::net::TcpListener,
    _runtime: tokio::runtime::Runtime,
}

impl Dropping {
    pub(in crate::doctor) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(([127, 0, 0, 1], 0).into())?;
            socket.listen(0)
        });
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
        Self {
            address,
            _queued: std::iter::from_fn(connect).collect(),
            _listener: listener,
            _runtime: runtime,
        }
    }
}

/// Returns a listener on a free port.
pub(super) fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Returns a standalone server's reply to hello.
pub(super) fn standalone() -> Document {
    doc! {
        "ismaster": true, "isWritablePrimary": true, "helloOk": true,
        "minWireVersion": 0, "maxWireVersion": 21,
        "localTime": bson::DateTime::now(), "ok": 1,
    }
}

/// Returns the reply to hello from `hosts[0]`, the primary of a set with the members `hosts`.
pub(super) fn primary(hosts: &[String], set_version: i32, election: &str) -> Document {
    let mut reply = standalone();
    reply.extend(doc! {
        "setName": "rs0", "setVersion": set_version, "me": &hosts[0], "primary": &hosts[0],
        "hosts": hosts, "electionId": bson::oid::ObjectId::parse_str(election).unwrap(),
    });
    reply
}

/// Returns the replies to hello from the secondary `hosts[1]`, which is `lag` milliseconds behind,
/// and from its primary.
pub(super) fn lagging(hosts: &[String], lag: i64) -> [Document; 2] {
    let now = bson::DateTime::now().timestamp_millis();
    let written =
        |date| doc! { "lastWrite": { "lastWriteDate": bson::DateTime::from_millis(date) } };
    let mut first = primary(hosts, 1, "7fffffff0000000000000001");
    let mut second = first.clone();
    first.extend(written(now));
    second.extend(written(now - lag));
    second.extend(doc! {
        "ismaster": false, "isWritablePrimary": false, "secondary": true, "me": &hosts[1],
    });
    [second, first]
}

/// Answers every command of a connection with `reply`.
pub(super) fn converse(
    mut stream: impl Read + Write,
    reply: &impl Fn() -> Document,
) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut bytes = length.to_vec();
        let rest = usize::try_from(i32::from_le_bytes(length)).map_err(io::Error::other)?;
        bytes.resize(rest.clamp(16, 1 << 20), 0);
        stream.read_exact(&mut bytes[4..])?;
        let request = WireMessage::decode(bytes).map_err(io::Error::other)?;
        let body = bson::serialize_to_vec(&reply()).map_err(io::Error::other)?;
        let (request_id, response_to) = (1, request.request_id());
        let answer = if request.op_code() == OpCode::Query {
            let flags = OpReply::AWAIT_CAPABLE;
            OpReply { request_id, response_to, flags, body: &body }.encode()
        } else {
            OpMsg { request_id, response_to, body: &body, ..OpMsg::default() }.encode()
        };
        stream.write_all(answer.map_err(io::Error::other)?.as_bytes())?;
        stream.flush()?;
    }
}

/// Returns the TLS settings of a server that presents the given `certificate`.
fn tls_server(certificates: &Certificates, certificate: ServerCertificate) -> Arc<ServerConfig> {
    tls_server_for(WebPkiClientVerifier::no_client_auth(), certificates, certificate)
}

/// Returns the TLS settings of a server that requires a certificate from each client.
fn tls_server_with_clients(certificates: &Certificates) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(certificates.authority()).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    tls_server_for(clients.build().unwrap(), certificates, ServerCertificate::Valid)
}

fn tls_server_for(
    clients: Arc<dyn ClientCertVerifier>,
    certificates: &Certificates,
    certificate: ServerCertificate,
) -> Arc<ServerConfig> {
    let file = certificates.server(certificate);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&file).unwrap().collect();
    let key = PrivateKeyDer::from_pem_file(&file).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients);
    Arc::new(config.with_single_cert(chain.unwrap(), key).unwrap())
}
