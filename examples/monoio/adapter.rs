//! A runtime whose futures and sockets never leave their thread: an adapter for monoio as an
//! application would write it.
//!
//! Tasks and all socket operations run on one thread; the engine and the application communicate
//! with it over channels. `sdam_transport` provides the timers and DNS look-ups, as it does for
//! every runtime that lacks its own.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use futures::{SinkExt as _, StreamExt as _, channel::oneshot, future::select};
use monoio::{
    LegacyDriver, RuntimeBuilder,
    io::{AsyncReadRent as _, AsyncWriteRentExt as _, Splitable as _},
    net::TcpStream,
};
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
    local::{self, Remote},
    pipe::{PipeEnd, Piped},
    runtime::{Backend, Runtime},
    system::{self, Epoch, ThreadClock},
};

/// A monoio runtime on a separate thread.
#[derive(Debug)]
pub(crate) struct Monoio {
    /// The runtime on which to start topologies.
    pub(crate) runtime: Runtime,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl Monoio {
    /// Starts monoio on a new thread.
    pub(crate) fn start() -> Self {
        let (remote, jobs) = local::remote();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(|| {
            let mut monoio = RuntimeBuilder::<LegacyDriver>::new().build()?;
            monoio.block_on(async {
                select(pin!(jobs.run()), stopped).await;
            });
            Ok(())
        });
        let clock = Arc::new(ThreadClock::new(Epoch::begin()));
        let backend = Backend::of_sockets(MonoioDial(remote.clone()), clock, system::entropy());
        Self { runtime: Runtime::new(backend, Arc::new(remote)), stop, thread }
    }

    /// Ends the runtime, and returns once all its tasks and sockets have been dropped.
    ///
    /// # Errors
    ///
    /// If monoio could not be started.
    pub(crate) fn end(self) -> io::Result<()> {
        drop(self.stop);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the monoio thread has panicked")))
    }
}

#[derive(Debug)]
struct MonoioDial(Remote);

#[async_trait]
impl Dial for MonoioDial {
    type Stream = Piped;

    async fn dial(&self, target: &DialTarget, _: DialOptions) -> io::Result<Piped> {
        let &DialTarget::Tcp(address) = target else {
            return Err(target.unsupported());
        };
        let connect = move || async move {
            let socket = TcpStream::connect_addr(address).await?;
            socket.set_nodelay(true)?;
            let [idle, interval] = [120, 10].map(|seconds| Some(Duration::from_secs(seconds)));
            // monoio cannot set a user timeout.
            socket.set_tcp_keepalive(idle, interval, Some(9))?;
            Ok(socket)
        };
        self.0.open(connect, carry).await
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        system::lookup_host(host).await
    }
}

/// Copies bytes between a socket and its stream until one of them ends.
async fn carry(socket: TcpStream, end: PipeEnd) {
    let (mut read, mut write) = socket.into_split();
    let PipeEnd { mut arrived, mut to_send } = end;
    let reading = async {
        loop {
            let (outcome, mut bytes) = read.read(vec![0; 16 << 10]).await;
            let ended = !matches!(outcome, Ok(1..));
            let chunk = outcome.map(|length| {
                bytes.truncate(length);
                bytes
            });
            if arrived.send(chunk).await.is_err() || ended {
                break;
            }
        }
    };
    let writing = async {
        while let Some(bytes) = to_send.next().await {
            if write.write_all(bytes).await.0.is_err() {
                break;
            }
        }
    };
    select(pin!(reading), pin!(writing)).await;
}
