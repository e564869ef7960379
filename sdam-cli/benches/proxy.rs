//! Measures the round trips of 50 connections through `sdam proxy`, and through a relay that only
//! copies bytes.
//!
//! The server, the clients and each relay run on separate threads. The relays take turns, so that
//! other load on the machine slows down both of them equally.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

mod pieces;

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use bson::{Document, doc};
use futures::future::join_all;
use sdam::transport::wire::{OpCode, OpMsg, OpReply, WireMessage};
use sdam_cli::{
    console::Console,
    proxy::{self, Arguments},
    target::Target,
    terminal::Palette,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use pieces::{Lines, TIMEOUT, block_on};

const CONNECTIONS: usize = 50;
const ROUNDS: usize = 9;
/// The duration of one turn of a relay.
const TURN: Duration = Duration::from_millis(500);

fn main() {
    // `cargo xtask bench` passes its filter as the last argument.
    let filter = std::env::args().skip(1).last().unwrap_or_default();
    if !filter.starts_with('-') && !"proxy/50_connections".contains(&filter) {
        return;
    }
    let server = listen(answer);
    let bare = listen(move |client| copy(client, server));
    let proxied = start_proxy(server);
    let mut rounds: Vec<_> = (0..ROUNDS).map(|_| [bare, proxied].map(rate)).collect();
    rounds.sort_by(|[a, b], [c, d]| (b / a).total_cmp(&(d / c)));
    let [bare, proxied] = rounds[ROUNDS / 2];
    println!("bench: proxy/50_connections/bare {bare:.0} per_s");
    println!("bench: proxy/50_connections/proxy {proxied:.0} per_s");
    println!("bench: proxy/50_connections/proxy_over_bare {:.2} ratio", proxied / bare);
}

/// Starts a thread that listens on a free port, and calls `serve` for each connection. Returns the
/// address to connect to.
fn listen<F: Future<Output = io::Result<()>> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let (sender, address) = mpsc::channel();
    thread::spawn(move || {
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                // Ignore the result: the task ends with an error when a connection is closed.
                tokio::spawn(serve(stream));
            }
        });
    });
    address.recv().unwrap()
}

async fn copy(mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// Answers a client's commands, as an idle standalone server would.
async fn answer(mut client: TcpStream) -> io::Result<()> {
    loop {
        let request = receive(&mut client).await?;
        let command = Document::from_reader(request.body()).unwrap();
        let reply = if command.contains_key("ping") {
            doc! { "ok": 1 }
        } else {
            doc! { "isWritablePrimary": true, "maxWireVersion": 17, "ok": 1 }
        };
        let (response_to, body) = (request.request_id(), &*reply.to_vec().unwrap());
        let reply = if request.op_code() == OpCode::Query {
            OpReply { request_id: 1, response_to, flags: 0, body }.encode()
        } else {
            OpMsg { response_to, body, ..OpMsg::default() }.encode()
        };
        client.write_all(reply.unwrap().as_bytes()).await?;
    }
}

async fn receive(stream: &mut TcpStream) -> io::Result<WireMessage> {
    let mut bytes = stream.read_i32_le().await?.to_le_bytes().to_vec();
    let length = i32::from_le_bytes(*bytes.first_chunk().unwrap());
    bytes.resize(length.try_into().unwrap(), 0);
    stream.read_exact(&mut bytes[4..]).await?;
    Ok(WireMessage::decode(bytes).unwrap())
}

/// Starts the proxy on a new thread, where it runs until the process ends. Returns its address.
fn start_proxy(server: SocketAddr) -> SocketAddr {
    let mut arguments = Arguments::default();
    arguments.listen = ([127, 0, 0, 1], 0).into();
    arguments.target = Target::new(&format!("mongodb://{server}/"));
    let (lines, output) = mpsc::channel();
    thread::spawn(move || {
        let (output, palette) = (Lines::new(lines), Palette::Plain);
        let console = Console { output, remarks: io::stderr(), palette };
        let ended = block_on(proxy::run(&arguments, console, futures::stream::pending()));
        unreachable!("{ended:?}");
    });
    let uri = output.recv_timeout(TIMEOUT).unwrap();
    let address = uri.strip_prefix("mongodb://").unwrap();
    address.split_once('/').unwrap().0.parse().unwrap()
}

/// Returns the number of round trips per second on all connections through `relay`.
fn rate(relay: SocketAddr) -> f64 {
    let body = &*doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
    let ping = OpMsg { body, ..OpMsg::default() }.encode().unwrap();
    let client = async || {
        let mut stream = TcpStream::connect(relay).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut trips = 0_u32;
        let mut exchange = async || {
            stream.write_all(ping.as_bytes()).await.unwrap();
            receive(&mut stream).await.unwrap();
        };
        // Do not measure the first exchange, during which the relay connects to the server.
        exchange().await;
        let start = Instant::now();
        while start.elapsed() < TURN {
            exchange().await;
            trips += 1;
        }
        f64::from(trips) / start.elapsed().as_secs_f64()
    };
    let clients = join_all((0..CONNECTIONS).map(|_| client()));
    block_on(clients).iter().sum()
}
