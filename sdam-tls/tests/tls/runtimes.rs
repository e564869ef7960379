//! Tests of TLS over the sockets of each runtime: the contract of connections, and deadlines.

use std::{io::Read as _, net::TcpListener, sync::Arc, time::Duration};

use futures::executor::block_on;
use sdam_core::{address::ServerAddress, error::Stage};
use sdam_testkit::conformance;
use sdam_transport::{layers::Layers, runtime::Backend, tls::Tls};

use crate::{certificates::Authority, handshakes::with, server::serve, terminated::Terminating};

/// Adds TLS to the transport of `backend`.
pub(crate) fn encrypted(mut backend: Backend, tls: Arc<dyn Tls>) -> Backend {
    let mut layers = Layers::default();
    layers.tls = Some(tls);
    backend.transport = backend.transport.with_layers(layers).unwrap();
    backend
}

/// Adds both ends of TLS to the transport of `backend`, so that the transport can connect to
/// servers without TLS.
fn terminated(backend: Backend) -> Backend {
    let authority = Authority::new("one");
    let tls = with(&authority.provider(), |it| it.allow_invalid_hostnames = true);
    let config = serve(&authority.issue(&["a"]));
    encrypted(backend, Arc::new(Terminating { tls, config }))
}

#[test]
pub(crate) fn encrypted_connections_of_tokio_keep_their_contract() {
    let tokio = tokio();
    let mut runtime = sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap();
    runtime.backend = terminated(runtime.backend);
    conformance::runtime(&runtime);
}

#[test]
pub(crate) fn encrypted_connections_that_block_keep_their_contract() {
    conformance::blocking(&terminated(sdam_runtime_blocking::backend()));
}

#[test]
fn a_server_that_does_not_answer_is_given_up_at_the_deadline() {
    let tokio = tokio();
    let ios = [
        sdam_runtime_tokio::from_handle(tokio.handle().clone()).unwrap().backend,
        sdam_runtime_smol::runtime().backend,
        sdam_runtime_async_std::runtime().backend,
        sdam_runtime_blocking::backend(),
    ];
    let tls = Authority::new("one").tls();
    for backend in ios {
        // The system accepts the connection, but no program answers.
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let server = ServerAddress::new("127.0.0.1", listener.local_addr().unwrap().port());
        let backend = encrypted(backend, Arc::clone(&tls));
        let deadline = backend.clock.now() + Duration::from_secs(1);
        let error = block_on(backend.transport.connect(&server, Some(deadline))).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert_eq!(error.stage(), Stage::Tls);
        assert!(backend.clock.now() >= deadline);
        let start = "the server did not finish the TLS handshake in time";
        assert!(error.message().starts_with(start), "{error}");
        let (mut socket, _) = listener.accept().unwrap();
        let mut sent = Vec::new();
        // Reading to the end succeeds because the client has closed its socket. If the client had
        // left data unread, the connection would have been reset instead.
        socket.read_to_end(&mut sent).unwrap();
        assert_eq!(sent[0], 22, "only the first record of the handshake is sent");
    }
}

fn tokio() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}
