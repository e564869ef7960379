//! A custom runtime: an executor and sockets, made of the standard library.
//!
//! `cargo run --example bring_your_own_runtime [URI]`; without one a deployment is simulated. The
//! executor polls everything on the main thread. Each socket has two threads, which is simple but
//! expensive. `sdam-transport` provides the other parts of a runtime.

use std::{
    env,
    error::Error,
    future::Future,
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, TcpStream},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use futures::{
    SinkExt,
    channel::oneshot,
    executor::{block_on, block_on_stream},
    future::{Either, select},
};
use sdam::Topology;
use sdam_core::time::Instant;
use sdam_select::Criteria;
use sdam_sim::serve::ReplicaSet;
use sdam_transport::{
    Dial, DialTarget, Io, NetTransport, Runtime, async_trait,
    local::{self, Jobs},
    pipe::{self, PipeEnd, Piped},
    system::{self, Epoch, ThreadClock},
};

/// Runs the executor: polls `main` on this thread after each wake-up.
fn run<T>(main: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let (mut cx, mut main) = (Context::from_waker(&waker), pin!(main));
    loop {
        if let Poll::Ready(value) = main.as_mut().poll(&mut cx) {
            return value;
        }
        // Returns at once if the bell has rung since the last wait.
        thread::park();
    }
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The transport: sockets with two threads each.
#[derive(Debug)]
struct Sockets;

#[async_trait]
impl Dial for Sockets {
    type Stream = Piped;

    async fn dial(&self, target: &DialTarget, _: Option<Instant>) -> io::Result<Piped> {
        let &DialTarget::Tcp(address) = target else {
            return Err(target.unsupported());
        };
        let (opened, socket) = oneshot::channel();
        // A socket that is opened after the caller is gone is dropped, and so closed.
        thread::Builder::new().spawn(move || drop(opened.send(TcpStream::connect(address))))?;
        let socket = socket.await.map_err(io::Error::other)??;
        socket.set_nodelay(true)?;
        let (stream, end) = pipe::piped();
        carry(socket, end)?;
        Ok(stream)
    }

    async fn lookup_ip(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        system::lookup_ip(host).await
    }
}

/// Carries bytes between a socket and its stream until either has ended.
fn carry(mut socket: TcpStream, end: PipeEnd) -> io::Result<()> {
    let (mut reader, mut arrived) = (socket.try_clone()?, end.arrived);
    thread::Builder::new().spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            let read = reader.read(&mut bytes);
            let ended = !matches!(read, Ok(1..));
            let chunk = read.map(|length| bytes[..length].to_vec());
            if block_on(arrived.send(chunk)).is_err() || ended {
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

/// Creates a runtime, and the tasks that the executor has to run for it.
fn runtime() -> (Runtime, Jobs) {
    let (spawner, jobs) = local::remote();
    let clock = Arc::new(ThreadClock::new(Epoch::begin()));
    let transport = NetTransport::new(Sockets, clock.clone());
    let io = Io::new(clock, Arc::new(transport), system::entropy());
    (Runtime::new(io, Arc::new(spawner)), jobs)
}

async fn application(uri: &str, runtime: Runtime) -> Result<(), Box<dyn Error + Send + Sync>> {
    let topology = Topology::builder(uri)?.start(runtime)?;
    let selected = topology.select(&Criteria::write()).await?;
    println!("writes go to {}", selected.address());
    println!("{}", topology.snapshot().description());
    topology.close().await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let simulated = ReplicaSet::start(3)?;
    let uri = env::args()
        .nth(1)
        .unwrap_or_else(|| simulated.uri().to_owned());
    let (runtime, jobs) = runtime();
    let (application, jobs) = (pin!(application(&uri, runtime)), pin!(jobs.run()));
    match run(select(application, jobs)) {
        Either::Left((outcome, _)) => outcome,
        Either::Right(_) => Err("the runtime has stopped early".into()),
    }
}

#[cfg(test)]
mod tests {
    use sdam_transport::conformance;

    use super::*;

    #[test]
    fn the_runtime_keeps_its_contracts() {
        let (runtime, jobs) = runtime();
        let (stop, stopped) = oneshot::channel::<()>();
        let executor = thread::spawn(|| drop(run(select(pin!(jobs.run()), stopped))));
        conformance::runtime(&runtime);
        conformance::shutdown(&runtime, || {
            drop(stop);
            executor.join().unwrap();
        });
    }
}
