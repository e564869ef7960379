//! Tests the relay of the example `follow_primary` with a simulated replica set on loopback.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[allow(dead_code, reason = "the tests do not run the program")]
#[path = "../follow_primary.rs"]
mod follow_primary;

use std::{net::SocketAddr, time::Duration};

use bson::{Document, doc};
use futures::StreamExt;
use sdam::{Topology, runtime, sim::Blueprint};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use follow_primary::{Dialer, PlainSockets, serve};

/// The time limit of every wait, which is long enough for a machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Calls `test` with the topology of a relay to `uri`, and the address of the relay.
fn with_relay(uri: &str, test: impl AsyncFnOnce(&Topology<Dialer>, SocketAddr)) {
    let host = tokio::runtime::Runtime::new().unwrap();
    host.block_on(async {
        let builder = Topology::builder(uri).unwrap().pools(PlainSockets);
        let topology = builder.start(runtime::tokio().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let relay = tokio::spawn(serve(listener, topology.clone()));
        timeout(TIMEOUT, test(&topology, address)).await.unwrap();
        topology.close().await;
        relay.abort();
    });
}

/// Sends hello, and returns the name of the member that replies.
async fn me(stream: &mut TcpStream) -> std::io::Result<String> {
    let body = doc! { "hello": 1, "$db": "admin" }.to_vec().unwrap();
    let length = i32::try_from(16 + 4 + 1 + body.len()).unwrap();
    // The header (length, id, 0, OP_MSG), no flags, and a section of kind 0.
    let words = [length, 1, 0, 2013, 0].map(i32::to_le_bytes);
    stream.write_all(&[words.as_flattened(), &[0], &body].concat()).await?;
    let mut head = [0; 21];
    stream.read_exact(&mut head).await?;
    let length = i32::from_le_bytes(*head.first_chunk().unwrap());
    let mut reply = vec![0; usize::try_from(length).unwrap() - head.len()];
    stream.read_exact(&mut reply).await?;
    let reply = Document::from_reader(&*reply).unwrap();
    Ok(reply.get_str("me").unwrap().to_owned())
}

#[test]
fn relays_to_the_old_primary_end_when_another_one_is_known_and_new_ones_lead_to_it() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    with_relay(set.uri(), async |_, address| {
        let mut old = TcpStream::connect(address).await.unwrap();
        let first = me(&mut old).await.unwrap();
        set.step_down().unwrap();
        // The client sends nothing more, so only the relay can end the connection.
        assert_eq!(old.read(&mut [0]).await.unwrap_or(0), 0);
        let second = me(&mut TcpStream::connect(address).await.unwrap()).await.unwrap();
        assert_ne!(first, second);
    });
}

#[test]
fn a_check_that_merely_fails_ends_no_relay() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let uri = format!("{}&connectTimeoutMS=100&serverMonitoringMode=poll", set.uri());
    with_relay(&uri, async |topology, address| {
        let mut own = TcpStream::connect(address).await.unwrap();
        let first = me(&mut own).await.unwrap();
        set.freeze(0).unwrap();
        topology.request_check();
        let mut snapshots = topology.watch();
        while snapshots.next().await.unwrap().description().primary().is_some() {}
        set.thaw(0).unwrap();
        assert_eq!(me(&mut own).await.unwrap(), first);
    });
}
