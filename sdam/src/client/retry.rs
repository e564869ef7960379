//! Decides whether a failed command is run again, and computes the time limits of its attempts.

use std::time::Duration;

use sdam_core::{error::Error, time::Instant};
use sdam_transport::pool::CommandReply;

/// The base backoff, unless the server specifies one (Client Backpressure: `BASE_BACKOFF`).
const BASE_BACKOFF: Duration = Duration::from_millis(100);

/// The maximum backoff (Client Backpressure: `MAX_BACKOFF`).
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The time limit of check-outs that stands for no limit: 34 years.
const NEVER: Duration = Duration::from_secs(1 << 30);

const NO_WRITES_PERFORMED: &str = "NoWritesPerformed";

/// Decides whether and when a failed command is run again, and which of its errors is returned
/// (Retryable Reads, Retryable Writes, Client Backpressure).
#[derive(Debug)]
pub(super) struct Retry {
    policy: Policy,
    /// The number of failed attempts.
    attempts: u32,
    /// The maximum number of retries; `None` if only the deadline limits them.
    limit: Option<u32>,
    /// The most relevant failure so far.
    kept: Option<Failure>,
}

/// The retry settings for a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// True if `retryReads` and `retryWrites` allow retries of this kind of command.
    pub(super) is_enabled: bool,
    /// True if `timeoutMS` is set, even to 0.
    pub(super) has_limit: bool,
    pub(super) max_adaptive_retries: u32,
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// True if the command was sent.
    pub(super) is_sent: bool,
    /// True if Retryable Reads or Retryable Writes allow a retry after this error.
    pub(super) is_retryable: bool,
    /// The `baseBackoffMS` from the server's reply.
    pub(super) base_backoff: Option<Duration>,
    /// The reply, if it has `ok: 1` and a write concern error.
    pub(super) accepted: Option<CommandReply>,
}

impl Retry {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, attempts: 0, limit: (!policy.has_limit).then_some(1), kept: None }
    }

    /// Returns the backoff before the next attempt, or `None` if the command is not retried.
    /// `random` is 64 random bits.
    pub(super) fn failed(&mut self, failure: Failure, random: u64) -> Option<Duration> {
        self.attempts += 1;
        let overloaded = failure.error.is_overload();
        let is_retryable = failure.is_retryable || failure.error.is_retryable_overload();
        let base = failure.base_backoff.unwrap_or(BASE_BACKOFF);
        self.keep(failure);
        if !(self.policy.is_enabled && is_retryable) {
            return None;
        }
        // I-62: after an overload error, `maxAdaptiveRetries` limits all retries.
        if overloaded {
            self.limit = Some(self.policy.max_adaptive_retries);
        }
        if self.limit.is_some_and(|limit| self.attempts > limit) {
            return None;
        }
        if !overloaded {
            return Some(Duration::ZERO);
        }
        let factor = 1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX);
        let longest = base.saturating_mul(factor).min(MAX_BACKOFF);
        // The upper 53 bits are a random number in [0, 1).
        let jitter = (random >> 11) as f64 / (1_u64 << 53) as f64;
        Some(longest.mul_f64(jitter))
    }

    /// Returns the outcome of the command after its last attempt. If no time is left for another
    /// attempt (`is_late`), the outcome is a timeout (Client Side Operations Timeout:
    /// "Retryability").
    pub(super) fn give_up(self, is_late: bool) -> Result<CommandReply, Error> {
        match self.kept {
            Some(Failure { accepted: Some(reply), .. }) if !is_late => Ok(reply),
            Some(Failure { error, .. }) => {
                let error = error.retried(self.attempts - 1);
                Err(if is_late { error.out_of_time() } else { error })
            }
            #[expect(clippy::unreachable, reason = "an attempt has failed")]
            None => unreachable!("a command is given up after a failure"),
        }
    }

    /// Returns the outcome of the command if no server could be selected for its next attempt.
    pub(super) fn end(self, unselected: Error, is_late: bool) -> Result<CommandReply, Error> {
        match self.kept {
            Some(_) => self.give_up(is_late),
            None => Err(unselected),
        }
    }

    /// Keeps the most relevant failure: the last one after which the command may have taken effect,
    /// otherwise the first one (Retryable Writes: "Executing Retryable Write Commands").
    fn keep(&mut self, failure: Failure) {
        let may_have_run = failure.is_sent && !failure.error.has_label(NO_WRITES_PERFORMED);
        if may_have_run || self.kept.is_none() {
            self.kept = Some(failure);
        }
    }
}

/// The time limit of an operation with all its attempts (Client Side Operations Timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// `timeoutMS` is not set: each step is limited by its own option.
    Unset,
    /// `timeoutMS` is 0: there is no limit, and the deprecated options do not apply either.
    Endless,
    At(Instant),
}

/// The time limits of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// The time limit that the client itself enforces for the exchange.
    pub(super) timeout: Option<Duration>,
    /// The command's `maxTimeMS`, which is positive; `None` if there is no limit.
    pub(super) max_time: Option<i64>,
}

impl Limit {
    /// Returns the limit of an operation that begins now.
    pub(super) fn new(timeout: Option<Duration>, now: Instant) -> Self {
        match timeout {
            None => Self::Unset,
            Some(Duration::ZERO) => Self::Endless,
            Some(timeout) => Self::At(now + timeout),
        }
    }

    pub(super) fn is_set(self) -> bool {
        self != Self::Unset
    }

    pub(super) fn has_passed(self, now: Instant) -> bool {
        matches!(self, Self::At(deadline) if now >= deadline)
    }

    /// Returns the time by which an operation must have checked out its connection, if its
    /// selection begins now and may take up to `selection`. `None` means that `waitQueueTimeoutMS`
    /// applies.
    pub(super) fn check_out_by(self, now: Instant, selection: Duration) -> Option<Instant> {
        // A selection timeout of 0 means that the selection does not wait. It sets no limit for the
        // check-out.
        let selected = Some(now + selection).filter(|_| !selection.is_zero());
        match self {
            Self::Unset => None,
            Self::Endless => Some(selected.unwrap_or(now + NEVER)),
            Self::At(deadline) => Some(selected.map_or(deadline, |by| by.min(deadline))),
        }
    }

    /// Returns the remaining time for an exchange with a server whose shortest round trip is
    /// `minimum_rtt`; `None` if no reply can arrive in time.
    pub(super) fn budget(
        self,
        now: Instant,
        minimum_rtt: Duration,
        socket_timeout: Option<Duration>,
    ) -> Option<Budget> {
        let unlimited = |timeout| Budget { timeout, max_time: None };
        let deadline = match self {
            Self::Unset => return Some(unlimited(socket_timeout)),
            Self::Endless => return Some(unlimited(None)),
            Self::At(deadline) => deadline,
        };
        let left = deadline.since(now);
        let on_server = left.checked_sub(minimum_rtt)?.as_millis();
        // A `maxTimeMS` of 0 means no limit, and servers accept at most an `i32`.
        let on_server = i64::from(i32::try_from(on_server).unwrap_or(i32::MAX));
        (on_server > 0).then_some(Budget { timeout: Some(left), max_time: Some(on_server) })
    }
}

#[cfg(test)]
mod tests;
