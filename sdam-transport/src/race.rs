//! Races futures against deadlines and against each other.
//!
//! If several futures are ready at the same time, they are taken in a fixed order, so that
//! simulated runs are reproducible: results before timers, and earlier attempts before later ones.

use std::{
    collections::BTreeSet,
    future::Future,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures::future::{self, BoxFuture, Either};
use sdam_core::{
    error::{Error, Stage},
    time::Instant,
};

use crate::clock::Clock;

/// Returns the result of `future` if it is ready by `deadline`. A deadline of `None` means no
/// timeout.
///
/// If the future is ready when it is polled, it wins even if the deadline has passed, because data
/// that arrived while the machine was suspended did arrive in time.
///
/// If the timers of the clock [block](Clock::blocks), the thread blocks until `future` is ready or
/// the deadline has passed, and polls `future` whenever it is woken. The race itself is then never
/// pending.
///
/// # Errors
///
/// [`Elapsed`] if the deadline passed first; `future` is dropped.
///
/// # Cancel safety
///
/// As cancel safe as `future` itself.
pub async fn deadline<F: Future>(
    clock: &dyn Clock,
    deadline: Option<Instant>,
    future: F,
) -> Result<F::Output, Elapsed> {
    let Some(deadline) = deadline else {
        return Ok(future.await);
    };
    let future = pin!(future);
    if clock.blocks() {
        return block_until(clock, deadline, future);
    }
    // `select` polls its first argument first.
    match future::select(future, clock.sleep_until(deadline)).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(((), _)) => Err(Elapsed),
    }
}

/// Like [`deadline`], but reports an expired deadline as an error with the given
/// stage and message.
///
/// # Errors
///
/// The error of `future`, or a timeout if the deadline passed first.
///
/// # Cancel safety
///
/// As cancel safe as `future` itself.
pub async fn within<T>(
    clock: &dyn Clock,
    deadline: Option<Instant>,
    (stage, message): (Stage, &str),
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let outcome = self::deadline(clock, deadline, future).await;
    outcome.unwrap_or_else(|elapsed| Err(Error::timeout(stage, message).with_source(elapsed)))
}

/// Returns the result of `future`. Calls `notice` each time that a further period of
/// `patience` has passed without a result.
///
/// # Cancel safety
///
/// As cancel safe as `future` itself.
pub(crate) async fn noticing<F: Future>(
    clock: &dyn Clock,
    patience: Duration,
    notice: impl Fn(),
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    loop {
        let limit = clock.now() + patience;
        if let Ok(output) = self::deadline(clock, Some(limit), future.as_mut()).await {
            return output;
        }
        notice();
    }
}

/// The error for a deadline that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("the deadline has passed")]
pub struct Elapsed;

/// The delay before the next concurrent attempt (RFC 8305: "Connection Attempt Delay").
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to whichever candidate answers first (RFC 8305: "Happy Eyeballs").
///
/// `attempt` is called for each candidate in turn: immediately for the first, and for each later
/// one as soon as an attempt fails or `delay` has passed since the previous start.
/// The first success wins and all other attempts are dropped.
///
/// # Errors
///
/// [`NoSuccess`], with the state of every candidate, if all failed or the deadline passed.
///
/// # Cancel safety
///
/// Dropping the future drops all attempts.
pub(crate) async fn happy_eyeballs<C, T, E, F>(
    clock: &dyn Clock,
    delay: Duration,
    deadline: Option<Instant>,
    candidates: Vec<C>,
    mut attempt: impl FnMut(&C) -> F,
) -> Result<T, NoSuccess<C, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut waiting = candidates.into_iter();
    let (mut running, mut failed) = (Vec::<(C, Pin<Box<F>>)>::new(), Vec::new());
    let mut expiry = deadline.map(|deadline| clock.sleep_until(deadline));
    loop {
        if let Some(candidate) = waiting.next() {
            let attempt = Box::pin(attempt(&candidate));
            running.push((candidate, attempt));
        }
        let more = waiting.len() > 0;
        let mut next = more.then(|| clock.sleep_until(clock.now() + delay));
        let lap = future::poll_fn(|cx| {
            let failed_before = failed.len();
            let mut index = 0;
            while let Some((_, attempt)) = running.get_mut(index) {
                match attempt.as_mut().poll(cx) {
                    Poll::Ready(Ok(output)) => return Poll::Ready(Lap::Won(output)),
                    Poll::Ready(Err(error)) => failed.push((running.remove(index).0, error)),
                    Poll::Pending => index += 1,
                }
            }
            // Polling a timer may block, so it is polled only while an attempt is pending.
            if running.is_empty() && !more {
                Poll::Ready(Lap::NoSuccess)
            } else if more && failed.len() > failed_before {
                Poll::Ready(Lap::Next)
            } else if is_ready(expiry.as_mut(), cx) {
                Poll::Ready(Lap::NoSuccess)
            } else if is_ready(next.as_mut(), cx) {
                Poll::Ready(Lap::Next)
            } else {
                Poll::Pending
            }
        });
        match lap.await {
            Lap::Won(output) => return Ok(output),
            Lap::Next => {}
            Lap::NoSuccess => {
                let running = running.into_iter().map(|(candidate, _)| candidate).collect();
                return Err(NoSuccess { failed, running, waiting: waiting.collect() });
            }
        }
    }
}

/// The state of each candidate in a race that no candidate won.
#[derive(Debug)]
pub(crate) struct NoSuccess<C, E> {
    /// Failed candidates, in the order of their failures.
    pub(crate) failed: Vec<(C, E)>,
    /// Candidates whose attempt was running when the deadline passed.
    pub(crate) running: Vec<C>,
    /// Candidates whose attempt had not begun when the deadline passed.
    pub(crate) waiting: Vec<C>,
}

impl<C, E> NoSuccess<C, E> {
    /// Returns whether the deadline passed before every candidate had failed.
    pub(crate) fn is_timeout(&self) -> bool {
        !(self.running.is_empty() && self.waiting.is_empty())
    }
}

/// Returns `addresses` in the order in which to try them: without duplicates, alternating between
/// the address families, and beginning with the first address (RFC 8305: "Sorting Addresses").
pub(crate) fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let mut seen = BTreeSet::new();
    let once = addresses.iter().copied().filter(|address| seen.insert(*address));
    let (preferred, other): (Vec<_>, Vec<_>) =
        once.partition(|address| address.is_ipv6() == first_is_v6);
    let mut turns = [preferred.into_iter(), other.into_iter()];
    let mut order = Vec::with_capacity(addresses.len());
    while turns.iter().any(|turn| turn.len() > 0) {
        order.extend(turns.iter_mut().filter_map(Iterator::next));
    }
    order
}

enum Lap<T> {
    Won(T),
    /// The next candidate's attempt is due.
    Next,
    NoSuccess,
}

fn is_ready(timer: Option<&mut BoxFuture<'static, ()>>, cx: &mut Context<'_>) -> bool {
    timer.is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
}

/// Polls `future` whenever it is woken, and blocks the thread between polls.
fn block_until<F: Future>(
    clock: &dyn Clock,
    deadline: Instant,
    mut future: Pin<&mut F>,
) -> Result<F::Output, Elapsed> {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Ok(output);
        }
        let now = clock.now();
        if now >= deadline {
            return Err(Elapsed);
        }
        let mut woken = signal.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            // After a spurious wake-up, the future is only polled once more.
            let waited = signal.changed.wait_timeout(woken, deadline.since(now));
            woken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *woken = false;
    }
}

/// A waker that does not use thread parking, so it cannot interfere with code that does.
#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
