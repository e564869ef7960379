use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bson::{RawDocument, doc};
use futures::{FutureExt, future::BoxFuture};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::{HelloRequest, ping},
    ids::{Generation, ObjectId, ServerId},
    pool::PoolClear,
    time::Instant,
};
use sdam_transport::{
    Clock, Connection, Spawner, Task, Transport,
    wire::{OpMsg, WireMessage},
};
use sdam_transport::{
    Io,
    pool::{NewPool, PoolFactory, PoolHandle},
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
    let message = OpMsg {
        request_id: 5,
        body,
        ..OpMsg::default()
    };
    message.encode().unwrap()
}

fn connect(servers: &Servers) -> Result<Box<dyn Connection>, Error> {
    let address = address();
    let connected = servers.connect(&address, None).now_or_never();
    connected.expect("nothing has to be waited for")
}

/// Sends hello and starts to receive the reply.
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
fn a_server_that_refuses_or_restarts_breaks_its_connections() {
    let servers = Servers::new(ManualClock::default(), Server::mongos());
    let mut connection = connect(&servers).unwrap();
    servers.restart(&address());
    let error = ask(&mut *connection).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.message(), "reset by peer");
    let mut connection = connect(&servers).unwrap();
    servers.set(&address(), Server::refusing("no"));
    let error = ask(&mut *connection).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.message(), "no");
    assert_eq!(connect(&servers).unwrap_err().message(), "no");
    assert_eq!(servers.remove(&address()).len(), 2);
    assert!(connect(&servers).is_ok(), "it is unknown again");
}

#[test]
fn connections_are_held_until_they_are_admitted() {
    let servers = Servers::new(ManualClock::default(), Server::silent()).holding_connections();
    let address = address();
    assert!(servers.admit(&address).is_err());
    let mut connecting = servers.connect(&address, None);
    assert!((&mut connecting).now_or_never().is_none());
    servers.admit(&address).unwrap();
    assert!(connecting.now_or_never().unwrap().is_ok());
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

#[test]
fn a_stalled_receive_is_pending_once() {
    let clock = ManualClock::jumping();
    let servers = Servers::new(clock.clone(), Server::replying(&doc! { "n": 4 }));
    let mut connection = connect(&servers).unwrap();
    servers.stall();
    let mut reply = ask(&mut *connection);
    assert!((&mut reply).now_or_never().is_none());
    assert!(clock.sleep_until(at(1)).now_or_never().is_none());
    assert_eq!(number(&reply.now_or_never().unwrap()), 4);
}

#[test]
fn the_log_names_connections_and_commands() {
    let servers = Servers::new(ManualClock::jumping(), Server::mongos());
    let mut connection = connect(&servers).unwrap();
    drop(ask(&mut *connection).now_or_never());
    let sent = connection.send(message(&ping(None))).now_or_never();
    sent.unwrap().unwrap();
    assert_eq!(servers.take_log(), ["a connect", "a isMaster", "a ping"]);
    assert!(servers.take_log().is_empty());
}

#[test]
fn held_tasks_are_returned_in_order() {
    let held = HeldTasks::default();
    for name in ["first", "second"] {
        held.spawn(Task::new(name, async {}));
    }
    let names: Vec<_> = held.take().iter().map(Task::name).collect();
    assert_eq!(names, ["first", "second"]);
    assert!(held.take().is_empty());
}

fn io() -> Io {
    let clock = ManualClock::default();
    let servers = Servers::new(clock.clone(), Server::silent());
    Io::new(Arc::new(clock), Arc::new(servers), 1)
}

#[test]
fn recording_pools_keep_every_call_and_the_generations_of_open_pools() {
    let pools = RecordingPools::default();
    let server = ServerId::from_u64(1);
    let pool = pools.create(NewPool::detached(server, address(), io()));
    pool.ready();
    let cause = Error::new(ErrorKind::Network, Stage::Operation, "reset");
    let mut clear = PoolClear::new(Generation::from_u64(1), cause);
    pool.clear(&clear);
    assert_eq!(pools.generations()[&server], clear.generation);
    clear.generation = Generation::from_u64(2);
    clear.service_id = Some(ObjectId::default());
    pool.clear(&clear);
    assert_eq!(pools.generations()[&server], Generation::from_u64(1));
    pool.close();
    assert!(pools.generations().is_empty());
    assert_eq!((pools.count("clear"), pools.commands().len()), (2, 4));
    let calls = pools.take_calls().into_iter().map(|call| call.to_string());
    let expected = ["create a", "ready a", "clear 1 a", "clear 2 a", "close a"];
    assert!(calls.eq(expected.map(str::to_owned)));
    assert!(pools.calls().is_empty());
}

#[test]
fn recording_pools_panic_once_at_the_chosen_call() {
    let pools = RecordingPools::default();
    pools.break_after(1, "create");
    let create = || {
        let new = NewPool::detached(ServerId::from_u64(1), address(), io());
        catch_unwind(AssertUnwindSafe(|| pools.create(new)))
    };
    let first = create().unwrap();
    let panic = create().unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&RecordingPools::PANIC));
    assert!(create().is_ok());
    assert_eq!(pools.count("create"), 3);
    pools.break_at("close");
    assert!(catch_unwind(AssertUnwindSafe(|| first.close())).is_err());
}
