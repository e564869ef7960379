//! A correct runtime on which the test doubles are based. Its tasks run on one thread, and each of
//! its sockets has its own threads.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    thread::{self, JoinHandle},
};

use async_trait::async_trait;
use futures::{
    SinkExt as _,
    channel::oneshot,
    executor::{block_on, block_on_stream},
    future::select,
};

use super::*;
use sdam_transport::{
    dial::{DialOptions, DialTarget},
    local,
    pipe::{self, PipeEnd, Piped},
    system::{self, Epoch, ThreadClock},
};

pub(super) struct Base {
    pub(super) runtime: Runtime,
    stop: oneshot::Sender<()>,
    pub(super) thread: JoinHandle<()>,
}

impl Base {
    pub(super) fn start() -> Self {
        let clock = Arc::new(ThreadClock::new(Epoch::begin()));
        let (remote, jobs) = local::remote();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            block_on(select(Box::pin(jobs.run()), stopped));
        });
        Self {
            runtime: Runtime::new(Backend::of_sockets(Threads, clock, 1), Arc::new(remote)),
            stop,
            thread,
        }
    }

    /// Shuts the runtime down and waits for its end.
    pub(super) fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// Sockets with one thread per direction.
#[derive(Debug)]
pub(super) struct Threads;

#[async_trait]
impl Dial for Threads {
    type Stream = Piped;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Piped> {
        let &DialTarget::Tcp(address) = target else {
            return Err(target.unsupported());
        };
        let (opened, socket) = oneshot::channel();
        // If the caller has dropped its future, sending fails and the socket is dropped, which
        // closes it.
        thread::spawn(move || drop(opened.send(TcpStream::connect(address))));
        let socket = socket.await.map_err(io::Error::other)??;
        system::tune_tcp(&socket, options.user_timeout)?;
        pump(socket)
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        system::lookup_host(host).await
    }
}

pub(super) fn pump(mut socket: TcpStream) -> io::Result<Piped> {
    let (stream, end) = pipe::piped();
    let PipeEnd { mut arrived, to_send } = end;
    let mut reader = socket.try_clone()?;
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let read = reader.read(&mut bytes);
            let ended = !matches!(read, Ok(1..));
            let chunk = read.map(|length| bytes[..length].to_vec());
            if block_on(arrived.send(chunk)).is_err() || ended {
                break;
            }
        }
    });
    thread::spawn(move || {
        for bytes in block_on_stream(to_send) {
            if socket.write_all(&bytes).is_err() {
                break;
            }
        }
        // Ends the other thread, unless a broken socket has already ended it.
        let _ = socket.shutdown(Shutdown::Both);
    });
    Ok(stream)
}
