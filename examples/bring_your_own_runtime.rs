//! A custom runtime that starts a thread for each task and two threads for each socket.
//!
//! `cargo run -p sdam-examples --example bring_your_own_runtime [URI]`. Without a connection
//! string, it simulates a replica set. Threads are simple but expensive; `examples/monoio` is a
//! runtime whose futures never leave their thread.

use std::{
    env,
    error::Error,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    thread,
};

use futures::{
    SinkExt,
    channel::oneshot,
    executor::{block_on, block_on_stream},
};
use sdam::{
    Criteria, Runtime, ServerAddress, Spawner, Topology, async_trait,
    runtime::{Backend, Task},
    sim::Blueprint,
};
use sdam_transport::{
    dial::{Dial, DialOptions, DialTarget},
    pipe::{self, PipeEnd, Piped},
    system::{self, Epoch, ThreadClock},
};

#[derive(Debug)]
struct Threads;

impl Spawner for Threads {
    fn spawn(&self, task: Task) {
        // A panic ends only this thread. If the thread cannot be started, the task is dropped.
        let _ = thread::Builder::new().spawn(|| block_on(task));
    }
}

#[derive(Debug)]
struct Sockets;

#[async_trait]
impl Dial for Sockets {
    type Stream = Piped;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Piped> {
        let &DialTarget::Tcp(address) = target else {
            return Err(target.unsupported());
        };
        let (opened, socket) = oneshot::channel();
        // If the caller has dropped its future, dropping the socket here closes it.
        thread::Builder::new().spawn(move || drop(opened.send(TcpStream::connect(address))))?;
        let socket = socket.await.map_err(io::Error::other)??;
        system::tune_tcp(&socket, options.user_timeout)?;
        let (stream, end) = pipe::piped();
        carry(socket, end)?;
        Ok(stream)
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        system::lookup_host(host).await
    }
}

/// Copies bytes between a socket and its stream until one of them ends.
fn carry(mut socket: TcpStream, mut end: PipeEnd) -> io::Result<()> {
    let mut reader = socket.try_clone()?;
    thread::Builder::new().spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            let read = reader.read(&mut bytes);
            let ended = !matches!(read, Ok(1..));
            let chunk = read.map(|length| bytes[..length].to_vec());
            if block_on(end.arrived.send(chunk)).is_err() || ended {
                break;
            }
        }
    })?;
    thread::Builder::new().spawn(move || {
        for bytes in block_on_stream(end.to_send) {
            if socket.write_all(&bytes).is_err() {
                break;
            }
        }
        // This ends the other thread, unless a broken socket has already ended it.
        let _ = socket.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

fn runtime() -> Runtime {
    let clock = Arc::new(ThreadClock::new(Epoch::begin()));
    // The backend parses messages, resolves host names, and tries the addresses of a host in turn.
    let backend = Backend::of_sockets(Sockets, clock, system::entropy());
    Runtime::new(backend, Arc::new(Threads))
}

/// Finds the primary and returns its address.
async fn application(uri: &str) -> Result<ServerAddress, Box<dyn Error>> {
    let topology = Topology::builder(uri)?.start(runtime())?;
    let primary = topology.select(&Criteria::write()).await?;
    println!("write to {}", primary.address());
    println!("{}", topology.snapshot().description());
    topology.close().await;
    Ok(primary.address().clone())
}

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        Some(uri) => block_on(application(&uri))?,
        None => block_on(application(Blueprint::replica_set(3).serve()?.uri()))?,
    };
    Ok(())
}

#[test]
fn the_runtime_keeps_its_contracts() {
    sdam_testkit::conformance::runtime(&runtime());
}

#[test]
fn the_application_finds_the_primary() -> Result<(), Box<dyn Error>> {
    let set = Blueprint::replica_set(3).serve()?;
    let primary = block_on(application(set.uri()))?;
    assert!(set.uri().contains(primary.as_str()), "{primary}");
    Ok(())
}
