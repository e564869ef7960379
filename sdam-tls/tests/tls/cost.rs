//! Measures the memory that an idle connection keeps.
//!
//! The allocator of `allocation_counter` counts per thread, so the server has its own thread.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use allocation_counter::AllocationInfo;
use futures::FutureExt as _;
use sdam_core::{address::ServerAddress, document::DocumentWriter};
use sdam_tls::rustls::{ServerConfig, ServerConnection, StreamOwned};
use sdam_transport::{
    connect::Connection,
    runtime::Backend,
    wire::{Header, OpMsg, WireMessage},
};

use crate::{certificates::Authority, runtimes::encrypted, server::serve};

/// Starts a server that echoes messages. The server uses TLS if it is given a configuration.
fn start(config: Option<Arc<ServerConfig>>) -> ServerAddress {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let server = ServerAddress::new("127.0.0.1", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, config) = (stream.unwrap(), config.clone());
            thread::spawn(move || match config {
                Some(config) => {
                    let session = ServerConnection::new(config).unwrap();
                    echo(StreamOwned::new(session, stream));
                }
                None => echo(stream),
            });
        }
    });
    server
}

fn echo(mut stream: impl Echo) {
    let mut header = [0; Header::LENGTH];
    while stream.read_exact(&mut header).is_ok() {
        let length = Header::decode(&header).unwrap().message_length();
        let mut message = header.to_vec();
        message.resize(length, 0);
        stream.read_exact(&mut message[Header::LENGTH..]).unwrap();
        // Sets `responseTo`, so that the echo is a reply.
        message.copy_within(4..8, 8);
        stream.write_all(&message).unwrap();
    }
}

trait Echo: Read + Write {}
impl Echo for TcpStream {}
impl Echo for StreamOwned<ServerConnection, TcpStream> {}

fn hello() -> WireMessage {
    let mut body = DocumentWriter::new();
    body.text("padding", &*"x".repeat(1000));
    let body = body.finish();
    let message = OpMsg { request_id: 1, body: &body, ..OpMsg::default() };
    message.encode().unwrap()
}

/// Opens a connection and exchanges two messages. Returns the connection and its allocations.
fn connect(backend: &Backend, server: &ServerAddress) -> (Box<dyn Connection>, AllocationInfo) {
    let mut opened = None;
    let (first, second) = (hello(), hello());
    let cost = allocation_counter::measure(|| {
        let exchanged = async {
            let mut connection = backend.transport.connect(server, None).await.unwrap();
            for message in [first, second] {
                connection.send(message).await.unwrap();
                connection.recv().await.unwrap();
            }
            connection
        };
        opened = exchanged.now_or_never();
    });
    (opened.unwrap(), cost)
}

#[test]
fn an_encrypted_connection_keeps_at_most_40_kib_more_than_a_plain_one() {
    let authority = Authority::new("one");
    let backend = sdam_runtime_blocking::backend();
    let plain = connect(&backend, &start(None)).1;
    let backend = encrypted(backend, authority.tls());
    let server = start(Some(serve(&authority.issue(&["127.0.0.1"]))));
    let connections: Vec<_> = (0..10).map(|_| connect(&backend, &server)).collect();
    let kept = connections.iter().map(|(_, cost)| cost.bytes_current);
    let kept: Vec<_> = kept.map(|bytes| bytes - plain.bytes_current).collect();
    assert!(kept.iter().all(|bytes| *bytes <= 40 << 10), "{kept:?}");
}
