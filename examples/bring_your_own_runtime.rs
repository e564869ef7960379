//! A runtime of one's own: an executor, its timers and its sockets, made of the standard library.
//!
//! `cargo run --example bring_your_own_runtime [URI]`; without one a deployment is simulated. The
//! executor polls everything on the main thread. Sockets are read by a thread each, which is
//! simple rather than cheap, too.

use std::{
    collections::BTreeSet,
    env,
    error::Error,
    future::{Future, poll_fn},
    io::{self, Read},
    mem,
    net::{IpAddr, Shutdown, TcpStream, ToSocketAddrs},
    pin::{Pin, pin},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    TryStreamExt,
    channel::{mpsc, oneshot},
    future::BoxFuture,
    io::{AllowStdIo, AsyncRead, AsyncWrite},
    stream::IntoAsyncRead,
};
use sdam::topology::Topology;
use sdam_core::time::Instant;
use sdam_select::criteria::Criteria;
use sdam_sim::serve::ReplicaSet;
use sdam_transport::{
    clock::Clock,
    dial::{Dial, DialTarget},
    net::NetTransport,
    runtime::{Io, Runtime},
    spawn::{Spawner, Task},
    stream::ByteStream,
    system::{self, Epoch},
};

/// Tasks, timers, and whether anything has happened.
#[derive(Debug)]
struct Executor {
    epoch: Epoch,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    spawned: Vec<Task>,
    deadlines: BTreeSet<Instant>,
    woken: bool,
}

impl Executor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs all tasks on this thread until `main` is ready. Whenever anything happens everything is
    /// polled, which is simple rather than cheap.
    fn run<T>(self: &Arc<Self>, main: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::clone(self));
        let (mut cx, mut main, mut tasks) =
            (Context::from_waker(&waker), pin!(main), Vec::<Task>::new());
        loop {
            if let Poll::Ready(value) = main.as_mut().poll(&mut cx) {
                return value;
            }
            tasks.append(&mut self.state().spawned);
            tasks.retain_mut(|task| Pin::new(task).poll(&mut cx).is_pending());
            let mut state = self.state();
            while !mem::take(&mut state.woken) {
                let next = state.deadlines.first().copied();
                if next.is_some_and(|next| next <= self.epoch.now()) {
                    state.deadlines.pop_first();
                    break;
                }
                let pause = next.map_or(Duration::MAX, |next| self.epoch.until(next));
                let waited = self.changed.wait_timeout(state, pause);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Wake for Executor {
    fn wake(self: Arc<Self>) {
        self.state().woken = true;
        self.changed.notify_one();
    }
}

/// The first seam: tasks.
#[derive(Debug)]
struct Spawns(Arc<Executor>);

impl Spawner for Spawns {
    fn spawn(&self, task: Task) {
        self.0.state().spawned.push(task);
        Arc::clone(&self.0).wake();
    }
}

/// The second seam: time.
#[derive(Debug)]
struct Ticks(Arc<Executor>);

impl Clock for Ticks {
    fn now(&self) -> Instant {
        self.0.epoch.now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let executor = Arc::clone(&self.0);
        Box::pin(poll_fn(move |_| {
            if executor.epoch.now() >= deadline {
                return Poll::Ready(());
            }
            executor.state().deadlines.insert(deadline);
            Poll::Pending
        }))
    }
}

/// The third seam: sockets, one thread for each.
#[derive(Debug)]
struct Sockets;

/// What a thread has read, and the socket to write to.
#[derive(Debug)]
struct Socket {
    read: IntoAsyncRead<mpsc::UnboundedReceiver<io::Result<Vec<u8>>>>,
    write: AllowStdIo<TcpStream>,
}

/// Lets a thread do what blocks.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, result) = oneshot::channel();
    thread::Builder::new().spawn(move || drop(sender.send(work())))?;
    result.await.map_err(io::Error::other)?
}

#[async_trait]
impl Dial for Sockets {
    type Stream = Socket;

    async fn dial(&self, target: &DialTarget, _: Option<Instant>) -> io::Result<Socket> {
        let &DialTarget::Tcp(address) = target else {
            return Err(target.unsupported());
        };
        let stream = on_thread(move || TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        let (sender, bytes) = mpsc::unbounded();
        let mut reader = stream.try_clone()?;
        thread::Builder::new().spawn(move || {
            let mut buffer = [0; 4096];
            // An empty read is the end, and so is a receiver that is gone.
            while let Ok(length) = reader.read(&mut buffer)
                && length > 0
                && sender.unbounded_send(Ok(buffer[..length].to_vec())).is_ok()
            {}
        })?;
        Ok(Socket {
            read: bytes.into_async_read(),
            write: AllowStdIo::new(stream),
        })
    }

    async fn lookup_ip(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let host = host.to_owned();
        let addresses = on_thread(move || (host, 0).to_socket_addrs()).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    }
}

impl ByteStream for Socket {}

impl Drop for Socket {
    fn drop(&mut self) {
        // This ends the thread; a socket that is broken has ended it already.
        let _ = self.write.get_ref().shutdown(Shutdown::Both);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.read).poll_read(cx, space)
    }
}

/// Blocks, but only if the send buffer of the system has no room for a hello.
impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_close(cx)
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let simulated = ReplicaSet::start(3)?;
    let uri = env::args()
        .nth(1)
        .unwrap_or_else(|| simulated.uri().to_owned());
    let executor = Arc::new(Executor {
        epoch: Epoch::begin(),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let clock: Arc<dyn Clock> = Arc::new(Ticks(Arc::clone(&executor)));
    let transport = NetTransport::new(Sockets, Arc::clone(&clock));
    let io = Io::new(clock, Arc::new(transport), system::entropy());
    let runtime = Runtime::new(io, Arc::new(Spawns(Arc::clone(&executor))));

    let topology = Topology::builder(&uri)?.start(runtime)?;
    executor.run(async move {
        let selected = topology.select(&Criteria::write()).await?;
        println!("writes go to {}", selected.address());
        println!("{}", topology.snapshot().description());
        topology.close().await;
        Ok(())
    })
}
