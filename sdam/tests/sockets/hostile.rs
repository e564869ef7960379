//! Tests servers that send malformed replies: each of these servers is marked with the right error,
//! and other servers are not affected.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener},
};

use sdam_transport::wire::{OpMsg, OpReply};

use super::*;

/// Sends a server's answer to the request with the given id. The server then sends nothing more.
type Answer = Box<dyn Fn(i32, &mut TcpStream) + Send + Sync>;

/// Starts a server on loopback that sends `answer` to each client, and then leaves the connection
/// open; returns its address.
pub(crate) fn start(answer: impl Fn(i32, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    // The thread blocks while it waits for the next connection, so it ends only with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || serve(&mut stream.unwrap(), &*answer));
        }
    });
    address
}

fn serve(stream: &mut TcpStream, answer: &dyn Fn(i32, &mut TcpStream)) {
    let Some((request, _)) = read_request(stream) else {
        return;
    };
    answer(request, stream);
    // Reading ends when the client closes the connection.
    let _ = std::io::copy(stream, &mut std::io::sink());
}

/// Returns the id of the next request and the bytes after its header; `None` at the end of the
/// stream.
pub(crate) fn read_request(stream: &mut TcpStream) -> Option<(i32, Vec<u8>)> {
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

pub(crate) fn mongos() -> RawDocumentBuf {
    rawdoc! { "ok": 1, "msg": "isdbgrid", "minWireVersion": 0, "maxWireVersion": 17 }
}

pub(crate) fn message(request: i32, body: &RawDocumentBuf) -> Vec<u8> {
    let message = OpMsg { response_to: request, body: body.as_bytes(), ..OpMsg::default() };
    message.encode().unwrap().into_bytes()
}

/// Returns an answer that sends a mongos reply modified by `change`.
fn changed(change: impl Fn(&mut Vec<u8>) + Send + Sync + 'static) -> Answer {
    Box::new(move |request, stream| {
        let mut reply = message(request, &mongos());
        change(&mut reply);
        // Writing may fail, because the client may already have refused the length.
        let _ = stream.write_all(&reply);
    })
}

/// Returns an answer whose header announces `length`.
fn length(length: i32) -> Answer {
    changed(move |reply| reply[..4].copy_from_slice(&length.to_le_bytes()))
}

fn replying(body: RawDocumentBuf) -> Answer {
    Box::new(move |request, stream| stream.write_all(&message(request, &body)).unwrap())
}

/// Returns bad answers, with the expected errors and parts of their messages.
fn bad_answers() -> Vec<(Answer, ErrorKind, &'static str)> {
    use ErrorKind::{Command, Network, Protocol, Timeout};
    let truncated: Answer = Box::new(|request, stream| {
        let whole = message(request, &mongos());
        stream.write_all(&whole[..whole.len() - 3]).unwrap();
        let _ = stream.shutdown(Shutdown::Write);
    });
    // The server sends nothing after the header, so only the announced length can make the client
    // stop reading.
    let long = changed(|reply| {
        reply.truncate(16);
        reply[..4].copy_from_slice(&((1_i32 << 20) + 1).to_le_bytes());
    });
    let too_long = "a length of 1048577 bytes, more than the 1048576 accepted";
    let http: Answer = Box::new(|_, stream| {
        let line = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        stream.write_all(line).unwrap();
    });
    // Changes the type of the first element of the body.
    let invalid_bson = changed(|reply| reply[16 + 5 + 4] = 0x7E);
    let opcode = changed(|reply| reply[12..16].copy_from_slice(&2012_i32.to_le_bytes()));
    let other_request: Answer =
        Box::new(|request, stream| stream.write_all(&message(request + 7, &mongos())).unwrap());
    let incomplete = changed(|reply| {
        let length = i32::try_from(reply.len()).unwrap() + 1_000_000;
        reply[..4].copy_from_slice(&length.to_le_bytes());
    });
    let refusal = rawdoc! { "ok": 0, "code": 59, "codeName": "CommandNotFound", "errmsg": "no" };
    let op_reply: Answer = Box::new(|request, stream| {
        let body = rawdoc! { "ok": 0, "errmsg": "go away" };
        let reply =
            OpReply { request_id: 1, response_to: request, flags: 0, body: body.as_bytes() };
        let reply = reply.encode().unwrap();
        stream.write_all(reply.as_bytes()).unwrap();
    });
    vec![
        (truncated, Network, "closed"),
        (length(i32::MAX), Protocol, "length"),
        (length(15), Protocol, "length"),
        (length(0), Protocol, "length"),
        (length(-1), Protocol, "length"),
        (length(i32::MIN), Protocol, "length"),
        (long, Protocol, too_long),
        (invalid_bson, Protocol, "BSON"),
        (http, Protocol, "length"),
        (opcode, Protocol, "OP_COMPRESSED"),
        (other_request, Protocol, "the reply is to message"),
        (incomplete, Timeout, "no reply within 2s"),
        (Box::new(|_, _| ()), Timeout, "no reply within 2s"),
        (replying(refusal), Command, "59 CommandNotFound"),
        (op_reply, Command, "go away"),
    ]
}

#[test]
fn each_server_with_a_bad_answer_gets_its_error_and_others_are_not_affected() {
    let (healthy, host) = (Blueprint::sharded(1).serve().unwrap(), tokio());
    let healthy = healthy.uri().trim_start_matches("mongodb://");
    let healthy = healthy.trim_end_matches('/');
    let (mut seeds, mut expected) = (vec![healthy.to_owned()], Vec::new());
    for (answer, kind, says) in bad_answers() {
        seeds.push(start(answer));
        expected.push((kind, says));
    }
    let options = "connectTimeoutMS=2000&heartbeatFrequencyMS=500";
    let builder = Topology::builder(&format!("mongodb://{}/?{options}", seeds.join(",")));
    let topology = builder.unwrap().start(on(&host)).unwrap();
    let all = |snapshot: &Snapshot| {
        let server = |seed: &String| snapshot.description().server(&seed.parse().ok()?).cloned();
        let mongos = server(&seeds[0])?.server_type == ServerType::Mongos;
        let errors = seeds[1..].iter().map(|seed| server(seed)?.error.clone());
        errors.collect::<Option<Vec<_>>>().filter(|_| mongos)
    };
    let errors = block_on(topology.wait_for(all, PATIENCE)).unwrap();
    for (error, (kind, says)) in errors.iter().zip(expected) {
        assert_eq!((error.kind(), error.stage()), (kind, Stage::Hello), "{error}");
        let text = format!("{error:#}");
        assert!(text.contains(says), "`{text}` does not say `{says}`");
    }
    block_on(topology.close());
}

#[test]
fn a_longer_reply_is_accepted_if_max_hello_size_allows_it() {
    let mut reply = mongos();
    reply.append(bson::cstr!("padding"), "x".repeat(1 << 20));
    let host = tokio();
    let builder = Topology::builder(&format!("mongodb://{}/", start(replying(reply)))).unwrap();
    let builder = builder.options(|options| options.max_hello_size = 2 << 20);
    let topology = builder.start(on(&host)).unwrap();
    let is_known = |snapshot: &Snapshot| {
        let server = &snapshot.description().servers()[0];
        (server.server_type == ServerType::Mongos).then_some(())
    };
    block_on(topology.wait_for(is_known, PATIENCE)).unwrap();
    block_on(topology.close());
}

/// Returns the outcome of a command with a reply of 2000 bytes, from a server that announces this
/// message size limit.
fn run_long_command(limit: i32) -> Result<(), sdam_core::error::Error> {
    let server = start(move |request, stream| {
        let hello = rawdoc! {
            "ok": 1, "minWireVersion": 0, "maxWireVersion": 17, "maxMessageSizeBytes": limit,
        };
        let long = rawdoc! { "ok": 1, "text": "x".repeat(2000) };
        let mut next = Some((request, &hello));
        while let Some((request, body)) = next {
            let _ = stream.write_all(&message(request, body));
            next = read_request(stream).map(|(request, sent)| {
                let is_ping = sent.windows(4).any(|word| word == b"ping");
                (request, if is_ping { &long } else { &hello })
            });
        }
    });
    let host = tokio();
    let uri = format!("mongodb://{server}/?directConnection=true");
    let builder = Topology::builder(&uri).unwrap().pools(Pools::new());
    let topology = builder.start(on(&host)).unwrap();
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
    // No message exceeds the agreed length (O-36).
    run_long_command(48_000_000).unwrap();
    let error = run_long_command(1000).unwrap_err();
    let text = error.message();
    assert!(text.contains("more than the 1000 accepted"), "{error:#}");
}
