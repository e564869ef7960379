//! Parts that runtimes on an operating system share: entropy, epoch, wall clock, timers, host name
//! look-up, socket options.
//!
//! Only the constructors of runtimes use these parts; the rest of this crate does not.

#[cfg(not(windows))]
use std::os::fd::AsFd as AsSocket;
#[cfg(windows)]
use std::os::windows::io::AsSocket;
use std::{
    collections::BTreeMap,
    future::Future,
    hash::{BuildHasher as _, RandomState},
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread,
    time::{self, Duration, SystemTime},
};

use futures::{channel::oneshot, future::BoxFuture};
use sdam_core::time::{Instant, UnixTime};
use socket2::{SockRef, TcpKeepalive};

use crate::clock::Clock;

/// The zero point of a runtime's [`Instant`]s, on the system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    start: time::Instant,
}

impl Epoch {
    /// Creates an epoch that starts now.
    pub fn begin() -> Self {
        Self { start: time::Instant::now() }
    }

    /// Returns the current time, counted from the epoch.
    pub fn now(self) -> Instant {
        Instant::EPOCH + self.start.elapsed()
    }

    /// Converts `instant` to the system's type. Returns `None` if the system cannot represent such
    /// a late time.
    pub fn to_system(self, instant: Instant) -> Option<time::Instant> {
        self.start.checked_add(instant.since(Instant::EPOCH))
    }

    /// Returns the time until `instant`, or zero if `instant` has passed.
    pub fn until(self, instant: Instant) -> Duration {
        instant.since(self.now())
    }
}

/// The system's clock, combined with the timers of a runtime.
pub struct SystemClock<S> {
    epoch: Epoch,
    sleep: S,
    blocks: bool,
}

impl<S: Fn(Epoch, Instant) -> BoxFuture<'static, ()>> SystemClock<S> {
    /// Creates a clock that counts from `epoch`. `sleep` creates the timer for a deadline; the
    /// timer has to keep the contract of [`Clock`].
    pub fn new(epoch: Epoch, sleep: S) -> Self {
        Self { epoch, sleep, blocks: false }
    }

    /// Declares that timers [block](Clock::blocks) their thread.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocks = true;
        self
    }
}

impl<S> Clock for SystemClock<S>
where
    S: Fn(Epoch, Instant) -> BoxFuture<'static, ()> + Send + Sync + 'static,
{
    fn now(&self) -> Instant {
        self.epoch.now()
    }

    fn wall(&self) -> UnixTime {
        wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        (self.sleep)(self.epoch, deadline)
    }

    fn blocks(&self) -> bool {
        self.blocks
    }
}

sdam_core::opaque!(SystemClock<S>, |this| epoch: this.epoch);

/// The system's clock with timers on a background thread. It is meant for runtimes that have no
/// timers, or whose timers work only on their own thread or only while the runtime runs.
///
/// The thread runs only while a timer is pending.
#[derive(Clone, Debug)]
pub struct ThreadClock {
    epoch: Epoch,
    timers: Arc<Timers>,
}

impl ThreadClock {
    /// Creates a clock that counts from `epoch`.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, timers: Arc::default() }
    }
}

impl Clock for ThreadClock {
    fn now(&self) -> Instant {
        self.epoch.now()
    }

    fn wall(&self) -> UnixTime {
        wall()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Timer { clock: self.clone(), deadline, number: None })
    }
}

#[derive(Debug, Default)]
struct Timers {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerState {
    /// The wakers of pending timers, by deadline and sequence number.
    waiting: BTreeMap<(Instant, u64), Waker>,
    next_number: u64,
    /// True if the thread is running.
    watched: bool,
}

impl Timers {
    fn state(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes timers at their deadlines, until no timer is pending.
    fn watch(&self, epoch: Epoch) {
        let mut state = self.state();
        while let Some((&(deadline, _), _)) = state.waiting.first_key_value() {
            let pause = epoch.until(deadline);
            if pause.is_zero() {
                let due = state.waiting.pop_first();
                // Release the lock first, because waking may drop a timer, which takes the lock.
                drop(state);
                if let Some((_, waker)) = due {
                    waker.wake();
                }
                state = self.state();
            } else {
                let waited = self.changed.wait_timeout(state, pause.min(LONGEST_PAUSE));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        state.watched = false;
        self.changed.notify_all();
    }
}

struct Timer {
    clock: ThreadClock,
    deadline: Instant,
    number: Option<u64>,
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let epoch = this.clock.epoch;
        if epoch.now() >= this.deadline {
            return Poll::Ready(());
        }
        let timers = &this.clock.timers;
        let mut state = timers.state();
        let number = *this.number.get_or_insert_with(|| {
            state.next_number += 1;
            state.next_number
        });
        let key = (this.deadline, number);
        let replaced = state.waiting.insert(key, cx.waker().clone());
        if !state.watched {
            let watched = Arc::clone(timers);
            let thread = thread::Builder::new().name("sdam-timers".to_owned());
            state.watched = thread.spawn(move || watched.watch(epoch)).is_ok();
        }
        let watched = state.watched;
        // Release the lock first, because dropping a waker may drop a task and its timers, which
        // take the lock.
        drop(state);
        drop(replaced);
        timers.changed.notify_one();
        if !watched {
            // The system could not start a thread, so the task is woken at once and will check the
            // clock again.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let timers = &self.clock.timers;
            let removed = timers.state().waiting.remove(&(self.deadline, number));
            // The lock is released first, because dropping a waker may take the lock.
            drop(removed);
            timers.changed.notify_one();
        }
    }
}

sdam_core::opaque!(Timer, |this| deadline: this.deadline);

/// The maximum length of one pause of the thread, because not every system supports longer waits.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Returns the time of the system's wall clock, or the start of 1970 if the clock is set to an
/// earlier time.
pub fn wall() -> UnixTime {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    UnixTime::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Returns a random seed that differs from call to call and from process to process.
///
/// The seed is derived from the keys of the standard library's hash maps, which are seeded by the
/// system's entropy. It is suitable for load balancing and jitter, but not for cryptography.
pub fn entropy() -> u64 {
    RandomState::new().hash_one(())
}

/// Returns the addresses of `host`, with any port, from the system's resolver, which runs on its own
/// thread.
///
/// # Errors
///
/// The resolver's error, or an error if the system cannot start a thread.
///
/// # Cancel safety
///
/// Dropping the future abandons the look-up; the thread ends when the resolver returns.
pub async fn lookup_host(host: &str) -> io::Result<Vec<SocketAddr>> {
    let (answer, answered) = oneshot::channel();
    let host = host.to_owned();
    thread::Builder::new().spawn(move || {
        let found = (host, 0).to_socket_addrs();
        // The receiver has been dropped if the caller has dropped its future.
        let _ = answer.send(found.map(Iterator::collect));
    })?;
    answered.await.map_err(io::Error::other)?
}

/// Sets the options of a TCP socket to a server, so that the socket sends small messages
/// immediately, and breaks within three and a half minutes after an idle peer has vanished.
///
/// `TCP_NODELAY` makes the socket send immediately. With `SO_KEEPALIVE`, the socket probes the peer
/// every 10 seconds after 2 minutes without traffic, and breaks after 9 unanswered probes. If the
/// system's own values can be read and are smaller, they are kept. The probes also keep firewalls
/// and load balancers from dropping an idle connection. No specification defines these values; they
/// are those of MongoDB's other drivers.
///
/// Probes are sent only while all sent bytes have been acknowledged. With `user_timeout`
/// (`TCP_USER_TIMEOUT`), the socket also breaks if, for that long, the peer has not acknowledged
/// sent bytes or has had no space for more. On an idle connection, the user timeout replaces the
/// number of probes. Systems other than Linux and Android ignore `user_timeout`.
///
/// # Errors
///
/// If `TCP_NODELAY` or the user timeout cannot be set.
pub fn tune_tcp(socket: &impl AsSocket, user_timeout: Option<Duration>) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    // A failure is ignored: a system that lacks one of the options keeps its own value, and any
    // connection is better than none.
    let _ = socket.set_tcp_keepalive(&keep_alive(&socket));
    limit_silence(&socket, user_timeout)
}

/// Sets the user timeout, if there is one.
#[cfg(any(target_os = "android", target_os = "linux"))]
fn limit_silence(socket: &SockRef<'_>, user_timeout: Option<Duration>) -> io::Result<()> {
    /// The maximum that the system accepts, about 25 days.
    const MAX: Duration = Duration::from_millis(i32::MAX as u64);
    user_timeout.map_or(Ok(()), |time| socket.set_tcp_user_timeout(Some(time.min(MAX))))
}

#[cfg(not(any(target_os = "android", target_os = "linux")))]
fn limit_silence(_: &SockRef<'_>, _: Option<Duration>) -> io::Result<()> {
    Ok(())
}

#[cfg(any(
    target_os = "android",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
    target_vendor = "apple",
))]
fn keep_alive(socket: &SockRef<'_>) -> TcpKeepalive {
    /// The number of unanswered probes that break the connection.
    const PROBES: u32 = 9;
    let limited = |own: io::Result<Duration>, limit| own.map_or(limit, |own| own.min(limit));
    let probes = socket.tcp_keepalive_retries();
    TcpKeepalive::new()
        .with_time(limited(socket.tcp_keepalive_time(), IDLE))
        .with_interval(limited(socket.tcp_keepalive_interval(), INTERVAL))
        .with_retries(probes.map_or(PROBES, |own| own.min(PROBES)))
}

/// Returns the options with only the values that can be set on this system. On the systems that
/// this function is for, either the current values cannot be read, or not all values can be set.
#[cfg(not(any(
    target_os = "android",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
    target_vendor = "apple",
)))]
fn keep_alive(_: &SockRef<'_>) -> TcpKeepalive {
    let keep_alive = TcpKeepalive::new().with_time(IDLE);
    #[cfg(windows)]
    let keep_alive = keep_alive.with_interval(INTERVAL);
    keep_alive
}

/// The time without traffic until the first probe.
const IDLE: Duration = Duration::from_secs(120);
/// The time between probes.
const INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
