//! Servers with malformed replies: each gets its error, and other servers are not affected.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use bson::{RawArrayBuf, rawdoc};
use futures::executor::block_on;
use sdam::{
    Criteria, Error, ErrorKind, Options, ServerType, Snapshot, Stage, Topology, TopologyType,
};
use sdam_pool::Pools;
use sdam_sim::serve::Builder;
use sdam_transport::wire::{OpMsg, OpReply};

/// The time limit of every wait, for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a server's answer to the request with this id; nothing follows it.
type Answer = dyn Fn(i32, &mut TcpStream) + Send + Sync;

/// A server on loopback that sends `answer` to each client, and then leaves the connection open.
struct Hostile {
    address: String,
}

impl Hostile {
    fn start(answer: impl Fn(i32, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answer: Arc<Answer> = Arc::new(answer);
        // The thread ends with the process, because it blocks on the test's next connection.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(&mut stream.unwrap(), &*answer));
            }
        });
        Self { address }
    }
}

fn serve(stream: &mut TcpStream, answer: &Answer) {
    let Some((request, _)) = read_request(stream) else {
        return;
    };
    answer(request, stream);
    // Ends when the client closes the connection.
    let _ = std::io::copy(stream, &mut std::io::sink());
}

/// Returns the id of the next request and the bytes after its header; `None` at the end.
fn read_request(stream: &mut TcpStream) -> Option<(i32, Vec<u8>)> {
    let mut header = [0; 16];
    stream.read_exact(&mut header).ok()?;
    let number = |at: usize| {
        let bytes = header[at..at + 4].try_into().ok()?;
        Some(i32::from_le_bytes(bytes))
    };
    let length = usize::try_from(number(0)?).ok()?;
    let mut rest = vec![0; length - header.len()];
    stream.read_exact(&mut rest).ok()?;
    Some((number(4)?, rest))
}

fn host() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Returns the error of a server with this `answer`, monitored beside a correct mongos.
fn error_of(answer: impl Fn(i32, &mut TcpStream) + Send + Sync + 'static) -> Error {
    let (healthy, hostile) = (Builder::sharded(1).start().unwrap(), Hostile::start(answer));
    let healthy_host = healthy
        .uri()
        .trim_start_matches("mongodb://")
        .trim_end_matches('/');
    let uri = format!(
        "mongodb://{},{healthy_host}/?connectTimeoutMS=2000&heartbeatFrequencyMS=500",
        hostile.address,
    );
    let host = host();
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let topology = Topology::builder(&uri).unwrap().start(runtime).unwrap();
    let both = |snapshot: &Snapshot| {
        let description = snapshot.description();
        let server = |host: &str| {
            description
                .servers()
                .iter()
                .find(|server| server.address.as_str() == host)
        };
        let mongos = server(healthy_host)?.server_type == ServerType::Mongos;
        server(&hostile.address)?.error.clone().filter(|_| mongos)
    };
    let error = block_on(topology.wait_for(both, PATIENCE)).unwrap();
    block_on(topology.close());
    error
}

fn check(
    answer: impl Fn(i32, &mut TcpStream) + Send + Sync + 'static,
    kind: ErrorKind,
    says: &str,
) {
    let error = error_of(answer);
    assert_eq!(
        (error.kind(), error.stage()),
        (kind, Stage::Hello),
        "{error}"
    );
    assert!(
        error.to_string().contains(says),
        "`{error}` does not say `{says}`"
    );
}

fn ok() -> Vec<u8> {
    rawdoc! { "ok": 1, "msg": "isdbgrid", "minWireVersion": 0, "maxWireVersion": 17 }.into_bytes()
}

fn message(request: i32, body: &[u8]) -> Vec<u8> {
    OpMsg {
        response_to: request,
        body,
        ..OpMsg::default()
    }
    .encode()
    .unwrap()
    .into_bytes()
}

#[test]
fn a_truncated_reply_is_a_network_error() {
    check(
        |request, stream| {
            let whole = message(request, &ok());
            stream.write_all(&whole[..whole.len() - 3]).unwrap();
            let _ = stream.shutdown(Shutdown::Write);
        },
        ErrorKind::Network,
        "closed",
    );
}

#[test]
fn an_invalid_length_is_refused_before_the_body_is_read() {
    for length in [i32::MAX, 15, 0, -1, i32::MIN] {
        check(
            move |request, stream| {
                let mut whole = message(request, &ok());
                whole[..4].copy_from_slice(&length.to_le_bytes());
                let _ = stream.write_all(&whole);
            },
            ErrorKind::Protocol,
            "length",
        );
    }
}

#[test]
fn a_reply_above_the_size_limit_of_checks_is_refused_by_its_header() {
    check(
        |request, stream| {
            let mut header = message(request, &ok());
            header.truncate(16);
            header[..4].copy_from_slice(&((1_i32 << 20) + 1).to_le_bytes());
            // Only the length can end the read, because nothing follows the header.
            stream.write_all(&header).unwrap();
        },
        ErrorKind::Protocol,
        "a length of 1048577 bytes, more than the 1048576 accepted",
    );
}

#[test]
fn a_longer_reply_is_accepted_if_max_hello_size_allows_it() {
    let hostile = Hostile::start(|request, stream| {
        let mut reply = rawdoc! { "ok": 1, "msg": "isdbgrid", "maxWireVersion": 17 };
        reply.append(bson::cstr!("padding"), "x".repeat(1 << 20));
        stream
            .write_all(&message(request, reply.as_bytes()))
            .unwrap();
    });
    let host = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let builder = Topology::builder(&format!("mongodb://{}/", hostile.address)).unwrap();
    let builder = builder.options(|options| options.max_hello_size = 2 << 20);
    let topology = builder.start(runtime).unwrap();
    let known = |snapshot: &Snapshot| {
        let servers = snapshot.description().servers();
        servers
            .iter()
            .find(|s| s.server_type == ServerType::Mongos)
            .map(drop)
    };
    block_on(topology.wait_for(known, PATIENCE)).unwrap();
    block_on(topology.close());
}

#[test]
fn a_reply_with_invalid_bson_is_a_protocol_error() {
    check(
        |request, stream| {
            let mut body = ok();
            // Makes the type of the first element invalid.
            body[4] = 0x7E;
            stream.write_all(&message(request, &body)).unwrap();
        },
        ErrorKind::Protocol,
        "",
    );
}

#[test]
fn a_reply_of_another_protocol_is_a_protocol_error() {
    check(
        |_, stream| {
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .unwrap();
        },
        ErrorKind::Protocol,
        "",
    );
}

#[test]
fn an_unexpected_opcode_is_a_protocol_error() {
    check(
        |request, stream| {
            let mut whole = message(request, &ok());
            whole[12..16].copy_from_slice(&2012_i32.to_le_bytes());
            stream.write_all(&whole).unwrap();
        },
        ErrorKind::Protocol,
        "",
    );
}

#[test]
fn a_reply_to_another_request_is_a_protocol_error() {
    check(
        |request, stream| stream.write_all(&message(request + 7, &ok())).unwrap(),
        ErrorKind::Protocol,
        "",
    );
}

#[test]
fn an_incomplete_reply_is_a_timeout() {
    check(
        |request, stream| {
            let mut whole = message(request, &ok());
            let length = i32::try_from(whole.len()).unwrap() + 1_000_000;
            whole[..4].copy_from_slice(&length.to_le_bytes());
            stream.write_all(&whole).unwrap();
        },
        ErrorKind::Timeout,
        "",
    );
}

#[test]
fn a_missing_reply_is_a_timeout() {
    check(|_, _| {}, ErrorKind::Timeout, "");
}

#[test]
fn a_command_error_keeps_its_code_and_text() {
    check(
        |request, stream| {
            let body =
                rawdoc! { "ok": 0, "code": 59, "codeName": "CommandNotFound", "errmsg": "no" };
            stream
                .write_all(&message(request, body.as_bytes()))
                .unwrap();
        },
        ErrorKind::Command,
        "59 CommandNotFound",
    );
}

#[test]
fn an_op_reply_to_an_op_msg_request_is_accepted() {
    let body = rawdoc! { "ok": 0, "errmsg": "go away" };
    check(
        move |request, stream| {
            let reply = OpReply {
                request_id: 1,
                response_to: request,
                flags: 0,
                body: body.as_bytes(),
            };
            stream
                .write_all(reply.encode().unwrap().as_bytes())
                .unwrap();
        },
        ErrorKind::Command,
        "go away",
    );
}

/// Invalid hosts are skipped, and hosts beyond the limit are not monitored.
#[test]
fn invalid_hosts_and_hosts_beyond_max_servers_are_not_monitored() {
    let server = Hostile::start(|request, stream| {
        let own = stream.local_addr().unwrap().to_string();
        let mut hosts = RawArrayBuf::new();
        hosts.push(own.as_str());
        hosts.push("not a host:at all");
        for index in 0..10_000 {
            hosts.push(format!("127.0.0.1:{}", 1 + index % 1000 + index / 1000));
        }
        let body = rawdoc! {
            "ok": 1, "ismaster": true, "setName": "rs", "hosts": hosts,
            "minWireVersion": 0, "maxWireVersion": 17,
        };
        stream
            .write_all(&message(request, body.as_bytes()))
            .unwrap();
    });
    let host = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let topology = Topology::builder(&format!("mongodb://{}/?replicaSet=rs", server.address))
        .unwrap()
        .options(|options| options.max_servers = 16)
        .start(sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap())
        .unwrap();
    let servers = topology.wait_for(
        |snapshot| {
            let description = snapshot.description();
            (description.topology_type() == TopologyType::ReplicaSetWithPrimary)
                .then(|| description.servers().len())
        },
        PATIENCE,
    );
    assert_eq!(block_on(servers), Some(16));
    block_on(topology.close());
}

/// Returns the outcome of a command with a reply of 2000 bytes, from a server that announces this
/// message size limit.
fn run_long_command(limit: i32) -> Result<(), sdam_core::error::Error> {
    let server = Hostile::start(move |request, stream| {
        let hello = rawdoc! {
            "ok": 1, "minWireVersion": 0, "maxWireVersion": 17, "maxMessageSizeBytes": limit,
        };
        let long = rawdoc! { "ok": 1, "text": "x".repeat(2000) };
        let mut next = Some((request, hello.as_bytes()));
        while let Some((request, body)) = next {
            let _ = stream.write_all(&message(request, body));
            next = read_request(stream).map(|(request, sent)| {
                let is_ping = sent.windows(4).any(|word| word == b"ping");
                (request, if is_ping { &long } else { &hello }.as_bytes())
            });
        }
    });
    let host = host();
    let runtime = sdam_runtime_tokio::from_handle(host.handle().clone()).unwrap();
    let uri = format!("mongodb://{}/?directConnection=true", server.address);
    let pools = Pools::new(&Options::parse(&uri).unwrap()).unwrap();
    let builder = Topology::builder(&uri).unwrap().pools(pools);
    let topology = builder.start(runtime).unwrap();
    block_on(async {
        let server = topology.select(&Criteria::write()).await.unwrap();
        let mut connection = server.pool().check_out().await?;
        let ping = rawdoc! { "ping": 1, "$db": "admin" };
        let outcome = connection.run_command(ping.as_bytes(), Some(PATIENCE));
        let outcome = outcome.await.map(drop);
        drop((connection, server));
        topology.close().await;
        outcome
    })
}

#[test]
fn a_pooled_connection_accepts_messages_as_long_as_the_server_has_announced() {
    // O-36
    run_long_command(48_000_000).unwrap();
    let error = run_long_command(1000).unwrap_err().to_string();
    assert!(error.contains("more than the 1000 accepted"), "{error}");
}
