use std::{sync::Arc, time::Duration};

use bson::{RawDocument, doc};
use futures::{FutureExt, future::BoxFuture};
use sdam_core::{address::ServerAddress, error::Error, hello::HelloRequest, time::Instant};
use sdam_transport::{
    clock::Clock,
    connect::{Connection, Transport},
    wire::{OpMsg, WireMessage},
};

use super::*;

fn address() -> ServerAddress {
    ServerAddress::new("a", 27017)
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Returns the request with this body.
fn message(body: &[u8]) -> WireMessage {
    let message = OpMsg { request_id: 5, body, ..OpMsg::default() };
    message.encode().unwrap()
}

fn connect(servers: &Servers) -> Result<Box<dyn Connection>, Error> {
    let address = address();
    let connected = servers.connect(&address, None).now_or_never();
    connected.expect("nothing has to be waited for")
}

/// Sends hello, and returns a future that receives the reply.
fn ask(connection: &mut dyn Connection) -> BoxFuture<'_, Result<WireMessage, Error>> {
    let hello = HelloRequest::poll(false, None).encode();
    let sent = connection.send(message(&hello)).now_or_never();
    sent.unwrap().unwrap();
    connection.recv()
}

/// Returns the field `n` of the reply.
fn number(reply: &Result<WireMessage, Error>) -> i32 {
    let reply = reply.as_ref().unwrap();
    assert_eq!(reply.response_to(), 5);
    let body = RawDocument::from_bytes(reply.body()).unwrap();
    body.get_i32("n").unwrap()
}

#[test]
fn a_request_to_a_silent_server_waits_for_an_answer_or_a_change() {
    let servers = Servers::new(ManualClock::default(), Server::silent());
    let mut connection = connect(&servers).unwrap();
    let mut reply = ask(&mut *connection);
    assert!((&mut reply).now_or_never().is_none());
    assert_eq!(servers.requests(&address()), 1);
    let answer = doc! { "n": 1 }.to_vec().unwrap();
    servers.answer(&address(), Some(&answer)).unwrap();
    assert_eq!(number(&reply.now_or_never().unwrap()), 1);
    assert!(servers.answer(&address(), None).is_err(), "nothing waits");

    let mut reply = ask(&mut *connection);
    assert!((&mut reply).now_or_never().is_none());
    servers.set(&address(), Server::replying(&doc! { "n": 2 }));
    assert_eq!(number(&reply.now_or_never().unwrap()), 2);
    assert_eq!(servers.answered(&address()), [Instant::EPOCH; 2]);

    servers.set(&address(), Server::silent());
    let mut reply = ask(&mut *connection);
    assert!((&mut reply).now_or_never().is_none());
    drop(reply);
    assert_eq!(servers.requests(&address()), 0, "the caller was dropped");
    assert_eq!(servers.connections(), 1);
    drop(connection);
    assert_eq!(servers.connections(), 0);
}

#[test]
fn on_a_jumping_clock_replies_take_their_time_or_end_at_the_deadline() {
    let clock = ManualClock::jumping();
    let servers = Servers::new(clock.clone(), Server::mongos());
    let reply: Reply = Arc::new(|request| {
        assert_eq!((&*request.command, request.connection), ("isMaster", 1));
        assert_eq!(request.now, at(20));
        doc! { "n": 3 }.to_vec().ok()
    });
    servers.change(&address(), |server| {
        server.hello = reply;
        server.delay = Duration::from_millis(20);
    });
    let mut connection = connect(&servers).unwrap();
    let reply = ask(&mut *connection).now_or_never().unwrap();
    assert_eq!((number(&reply), clock.now()), (3, at(20)));

    connection.set_deadline(Some(at(39)));
    let error = ask(&mut *connection).now_or_never().unwrap().unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(clock.now(), at(39));

    servers.change(&address(), |server| server.silent = true);
    connection.set_deadline(Some(at(100)));
    let error = ask(&mut *connection).now_or_never().unwrap().unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(clock.now(), at(100));
}
