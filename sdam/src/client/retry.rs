use std::time::Duration;

use sdam_core::error::Error;
use sdam_transport::pool::CommandReply;

use super::error::NO_WRITES_PERFORMED;

/// The base backoff, unless the server specifies one (Client Backpressure: `BASE_BACKOFF`).
const BASE_BACKOFF: Duration = Duration::from_millis(100);

/// The maximum backoff (Client Backpressure: `MAX_BACKOFF`).
const MAX_BACKOFF: Duration = Duration::from_secs(10);

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

#[cfg(test)]
mod tests;
