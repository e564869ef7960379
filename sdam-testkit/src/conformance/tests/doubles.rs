//! Runtimes that break one rule each, and the correct runtime on which they are based.

use std::{
    future::{Future, poll_fn},
    io::{self, Read as _, Write as _},
    mem,
    net::{Shutdown, SocketAddr, TcpStream},
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle, ThreadId},
};

use async_trait::async_trait;
use futures::{
    FutureExt as _, SinkExt as _,
    executor::{block_on, block_on_stream},
    future::{self, select},
};
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    time::{Instant, UnixTime},
};

use super::*;
use sdam_transport::{
    connect::{Connection, Transport},
    dial::{DialOptions, DialTarget},
    local,
    pipe::{self, PipeEnd, Piped},
    spawn::{Spawner, yield_now},
    system::{self, Epoch, ThreadClock},
    wire::WireMessage,
};

/// A correct runtime. Its tasks run on one thread, and each of its sockets has its own threads.
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

/// The fault of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    ClockGoesBack,
    TimersYieldFirst,
    TimersBlock,
    TimersAreReady,
    TimersNeverReady,
    TimersWakeTheFirst,
    FarTimersPanic,
    TimersEnd,
    NamesAreUnknown,
    FailuresAreOfConnect,
    FailuresAreOfTheProtocol,
    DeadlinesAreForgotten,
    AttemptsGoOn,
    AttemptsPanicLate,
    RepliesAreRepeated,
    LimitIsSmall,
    LimitIsFixed,
    LimitIsNone,
    LooksBreak,
    ReceivesTimeOut,
    ReceivesWakeTheFirst,
    SendsSucceed,
    ConnectionsLeak,
    TasksRunInline,
    SpawnsOnlyInside,
    SpawnsOnlyOutside,
    PanicsEndAll,
    SpawnBlocks,
    TasksNeverRun,
    TasksTakeTurns,
    TasksOutlive,
    RefusalsComeLate,
    DialBlocks,
    SocketsAreUntuned,
    ZonesAreLost,
}

/// Creates a runtime with the given fault.
pub(super) fn breaking(fault: Fault) -> Base {
    let mut base = Base::start();
    let runtime = &mut base.runtime;
    // The flag is set when the runtime's tasks are dropped. The clock and the transport read it.
    let ended = Arc::new(AtomicBool::new(false));
    let guard = SetOnDrop(Arc::clone(&ended));
    runtime.spawner.spawn(Task::new("guard", async move {
        let _guard = guard;
        future::pending::<()>().await;
    }));
    runtime.backend.clock = Arc::new(BrokenClock {
        inner: Arc::clone(&runtime.backend.clock),
        fault,
        asked: AtomicU64::new(0),
        ended: Arc::clone(&ended),
    });
    runtime.backend.transport =
        Arc::new(BrokenTransport { inner: Arc::clone(&runtime.backend.transport), fault, ended });
    let (turns, tasks) = mpsc::channel();
    thread::spawn(|| tasks.into_iter().for_each(block_on::<Task>));
    runtime.spawner = Arc::new(BrokenSpawner {
        inner: Arc::clone(&runtime.spawner),
        fault,
        own_thread: base.thread.thread().id(),
        turns,
        panicked: Arc::default(),
    });
    base
}

pub(super) fn dialer(fault: Fault) -> Dialer<BrokenDial> {
    Dialer::new(BrokenDial(fault), Base::start().runtime.backend.clock)
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct BrokenClock {
    inner: Arc<dyn Clock>,
    fault: Fault,
    asked: AtomicU64,
    ended: Arc<AtomicBool>,
}

impl Clock for BrokenClock {
    fn now(&self) -> Instant {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        if self.fault == Fault::ClockGoesBack && asked % 2 == 1 {
            return Instant::EPOCH;
        }
        self.inner.now()
    }

    fn wall(&self) -> UnixTime {
        self.inner.wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let timer = self.inner.sleep_until(deadline);
        let far = deadline == Instant::MAX;
        match self.fault {
            Fault::TimersYieldFirst => yield_now().boxed(),
            Fault::TimersAreReady => future::ready(()).boxed(),
            Fault::TimersBlock => async move {
                let waiting = thread::spawn(|| block_on(timer));
                waiting.join().unwrap();
            }
            .boxed(),
            Fault::TimersNeverReady => future::pending().boxed(),
            Fault::TimersWakeTheFirst => async move { first_waker(timer, &mut None).await }.boxed(),
            Fault::FarTimersPanic if far => panic!("too far"),
            Fault::TimersEnd => {
                let ended = Arc::clone(&self.ended);
                async move {
                    timer.await;
                    if ended.load(Ordering::SeqCst) {
                        future::pending::<()>().await;
                    }
                }
                .boxed()
            }
            _ => timer,
        }
    }
}

/// Polls `future`, but wakes only the task that polled it first. A task that polls it later is
/// never woken.
async fn first_waker<F: Future + Unpin>(mut future: F, first: &mut Option<Waker>) -> F::Output {
    poll_fn(move |cx| {
        let first = first.get_or_insert_with(|| cx.waker().clone());
        if first.will_wake(cx.waker()) { future.poll_unpin(cx) } else { Poll::Pending }
    })
    .await
}

#[derive(Debug)]
struct BrokenTransport {
    inner: Arc<dyn Transport>,
    fault: Fault,
    ended: Arc<AtomicBool>,
}

#[async_trait]
impl Transport for BrokenTransport {
    async fn connect(
        &self,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        let deadline = deadline.filter(|_| self.fault != Fault::DeadlinesAreForgotten);
        let connected = match self.fault {
            Fault::NamesAreUnknown => {
                let text = "no name is known";
                return Err(Error::network(Stage::Dns, text));
            }
            Fault::AttemptsPanicLate if self.ended.load(Ordering::SeqCst) => {
                panic!("the runtime has shut down")
            }
            Fault::AttemptsGoOn => {
                // The connection is opened within the first poll, so the socket stays open if the
                // future is not polled again.
                let connect = || block_on(self.inner.connect(target, deadline));
                let connected = thread::scope(|scope| scope.spawn(connect).join().unwrap());
                let connected = mem::ManuallyDrop::new(connected);
                yield_now().await;
                mem::ManuallyDrop::into_inner(connected)
            }
            _ => self.inner.connect(target, deadline).await,
        };
        let mut connection = connected.map_err(|error| match self.fault {
            Fault::FailuresAreOfConnect => error.at(Stage::Connect),
            Fault::FailuresAreOfTheProtocol => Error::protocol(error.stage(), "no"),
            _ => error,
        })?;
        match self.fault {
            Fault::LimitIsSmall => connection.set_max_message_size(16 << 20),
            Fault::LimitIsNone => connection.set_max_message_size(usize::MAX),
            _ => {}
        }
        Ok(Box::new(BrokenConnection {
            inner: Some(connection),
            fault: self.fault,
            last: None,
            is_broken: false,
            first: None,
        }))
    }
}

#[derive(Debug)]
struct BrokenConnection {
    /// Always `Some` until this connection is dropped.
    inner: Option<Box<dyn Connection>>,
    fault: Fault,
    last: Option<WireMessage>,
    /// True if a receive was dropped.
    is_broken: bool,
    /// The waker of the first poll.
    first: Option<Waker>,
}

impl BrokenConnection {
    fn inner(&mut self) -> &mut dyn Connection {
        &mut **self.inner.as_mut().unwrap()
    }

    /// If the fault requires it, wakes only the waker of the connection's first poll.
    async fn wake<T>(
        &mut self,
        call: impl for<'c> FnOnce(&'c mut dyn Connection) -> BoxFuture<'c, T>,
    ) -> T {
        let call = call(&mut **self.inner.as_mut().unwrap());
        match self.fault {
            Fault::ReceivesWakeTheFirst => first_waker(call, &mut self.first).await,
            _ => call.await,
        }
    }
}

#[async_trait]
impl Connection for BrokenConnection {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        if mem::take(&mut self.is_broken) {
            return Err(Error::network(Stage::Hello, "the connection broke"));
        }
        let sent = self.wake(|inner| inner.send(message)).await;
        if self.fault == Fault::SendsSucceed {
            return Ok(());
        }
        sent
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        if let (Fault::RepliesAreRepeated, Some(last)) = (self.fault, &self.last) {
            return Ok(last.clone());
        }
        self.is_broken = self.fault == Fault::LooksBreak;
        let received = self.wake(|inner| inner.recv()).await;
        self.is_broken = false;
        self.last = received.as_ref().ok().cloned();
        received.map_err(|error| match self.fault {
            Fault::ReceivesTimeOut => Error::timeout(error.stage(), "no"),
            _ => error,
        })
    }

    fn set_max_message_size(&mut self, bytes: usize) {
        if self.fault != Fault::LimitIsFixed {
            self.inner().set_max_message_size(bytes);
        }
    }
}

impl Drop for BrokenConnection {
    fn drop(&mut self) {
        if self.fault == Fault::ConnectionsLeak {
            mem::forget(self.inner.take());
        }
    }
}

#[derive(Debug)]
struct BrokenSpawner {
    inner: Arc<dyn Spawner>,
    fault: Fault,
    own_thread: ThreadId,
    /// A thread that runs tasks to their end, one after another.
    turns: mpsc::Sender<Task>,
    panicked: Arc<AtomicUsize>,
}

impl Spawner for BrokenSpawner {
    fn spawn(&self, mut task: Task) {
        let inside = thread::current().id() == self.own_thread;
        match self.fault {
            Fault::TasksRunInline if (&mut task).now_or_never().is_some() => {}
            Fault::SpawnsOnlyInside if !inside => {}
            Fault::SpawnsOnlyOutside if inside => {}
            Fault::TasksNeverRun => mem::forget(task),
            Fault::SpawnBlocks => {
                let end = std::time::Instant::now() + Duration::from_millis(20);
                while std::time::Instant::now() < end {
                    thread::park_timeout(Duration::from_millis(20));
                }
                self.inner.spawn(task);
            }
            Fault::TasksTakeTurns => drop(self.turns.send(task)),
            Fault::TasksOutlive => drop(thread::spawn(|| block_on(task))),
            Fault::PanicsEndAll if self.panicked.load(Ordering::SeqCst) > THREADS => {}
            Fault::PanicsEndAll => {
                let task =
                    Panicking { task: Mutex::new(task), panicked: Arc::clone(&self.panicked) };
                self.inner.spawn(Task::new("panicking", task));
            }
            _ => self.inner.spawn(task),
        }
    }
}

/// The number of threads that the runtime pretends to have. With [`Fault::PanicsEndAll`], each
/// panic ends one of them.
const THREADS: usize = 60;

/// A guard that records whether its task has panicked.
struct Panicking {
    task: Mutex<Task>,
    panicked: Arc<AtomicUsize>,
}

impl Future for Panicking {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut task = self.task.lock().unwrap();
        Pin::new(&mut *task).poll(cx)
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        // A lock is poisoned if a panic occurs while it is held.
        self.panicked.fetch_add(self.task.is_poisoned().into(), Ordering::SeqCst);
    }
}

#[derive(Debug)]
pub(super) struct BrokenDial(pub(super) Fault);

#[async_trait]
impl Dial for BrokenDial {
    type Stream = Piped;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Piped> {
        match (self.0, target) {
            // Behaves like a socket that connects on first use.
            (Fault::RefusalsComeLate, _) => match Threads.dial(target, options).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    Ok(pipe::piped().0)
                }
                dialled => dialled,
            },
            (Fault::DialBlocks | Fault::SocketsAreUntuned, DialTarget::Tcp(address)) => {
                pump(TcpStream::connect(address)?)
            }
            _ => Threads.dial(target, options).await,
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        let mut found = Threads.lookup_host(host).await?;
        if self.0 == Fault::ZonesAreLost {
            found = found.iter().map(|address| SocketAddr::new(address.ip(), 0)).collect();
        }
        Ok(found)
    }
}
