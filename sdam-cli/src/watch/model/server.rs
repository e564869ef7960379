//! The known state of one server, and its last checks with their summary for a sparkline.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    event::Heartbeat,
    hello::Hello,
    ids::ServerId,
    pool::PoolClear,
    server::{Rtt, ServerDescription, ServerType},
    time::Instant,
};

use super::push;

/// The maximum number of roles to keep.
const ROLES: usize = 8;

/// The maximum number of checks to keep.
const CAPACITY: usize = 1024;

/// The way in which a server is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum Mode {
    /// The server replies when something changes, and at least once every
    /// `heartbeatFrequencyMS`.
    #[strum(serialize = "stream")]
    Streaming,
    /// The client asks every `heartbeatFrequencyMS`.
    #[strum(serialize = "poll")]
    Polling,
}

/// Consecutive failed checks of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The time at which the first failed check ended.
    pub(crate) since: Instant,
    /// The time at which the last failed check ended.
    pub(crate) last: Instant,
    /// The number of failed checks.
    pub(crate) checks: u32,
    /// The last error.
    pub(crate) error: Error,
    /// True if a later check has succeeded.
    pub(crate) is_over: bool,
}

/// The state of a server's connection pool, which the topology controls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    /// The generation to which new connections of the pool belong.
    pub(crate) generation: u64,
    /// True if the pool may open connections.
    pub(crate) is_ready: bool,
    /// The time and the cause of the last clear.
    pub(crate) cleared: Option<(Instant, Error)>,
}

/// Everything known about one server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// The description, updated with the round-trip times and the write date from the last check.
    pub(crate) description: Arc<ServerDescription>,
    /// The last checks.
    pub(crate) history: History,
    /// The way in which the server is checked; `None` before the first check.
    pub(crate) mode: Option<Mode>,
    /// The time of the last successful check.
    pub(crate) answered: Option<Instant>,
    /// The last sequence of failed checks.
    pub(crate) trouble: Option<Trouble>,
    /// The state of the server's connection pool.
    pub(crate) pool: Pool,
    /// The last roles with their start times, oldest first.
    pub(crate) roles: VecDeque<(Instant, ServerType)>,
    /// The round-trip time of the last check, if the check itself measured it.
    measured: Option<Duration>,
}

impl Server {
    /// Creates the state of a server that has joined the topology.
    pub(super) fn new(at: Instant, id: ServerId, address: &ServerAddress) -> Self {
        Self {
            description: Arc::new(ServerDescription::unknown(id, address.clone())),
            history: History::default(),
            mode: None,
            answered: None,
            trouble: None,
            pool: Pool::default(),
            roles: [(at, ServerType::Unknown)].into(),
            measured: None,
        }
    }

    /// Returns the time at which the server took its current role.
    pub(crate) fn since(&self) -> Instant {
        self.roles.back().map_or(Instant::EPOCH, |(at, _)| *at)
    }

    /// Returns the failed checks since the last successful one, if there are any.
    pub(crate) fn current_trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref().filter(|trouble| !trouble.is_over)
    }

    /// Returns the error that makes the server unavailable.
    pub(crate) fn error(&self) -> Option<&Error> {
        let failed = self.current_trouble().map(|trouble| &trouble.error);
        self.description.error.as_ref().or(failed)
    }

    pub(super) fn change(&mut self, at: Instant, new: &Arc<ServerDescription>) {
        if self.roles.back().map(|(_, role)| *role) != Some(new.server_type) {
            push(&mut self.roles, ROLES, (at, new.server_type));
        }
        self.description = Arc::clone(new);
    }

    pub(super) fn succeeded(
        &mut self,
        at: Instant,
        heartbeat: &Heartbeat,
        duration: Duration,
        reply: &[u8],
    ) {
        let mode = if heartbeat.awaited { Mode::Streaming } else { Mode::Polling };
        // The first check on a connection is never an awaited one, so its reply does not show
        // whether the server streams.
        let is_first = self.mode != Some(Mode::Streaming) || self.current_trouble().is_some();
        if is_first || heartbeat.awaited {
            self.mode = Some(mode);
        }
        self.measured = (!heartbeat.awaited).then_some(duration);
        self.answered = Some(at);
        if let Some(trouble) = &mut self.trouble {
            trouble.is_over = true;
        }
        // If a reply changes only the time of the last write, no other event reports the new time,
        // so take it from the reply.
        if let Ok(hello) = Hello::parse(reply) {
            let description = Arc::make_mut(&mut self.description);
            if description.server_type == hello.server_type {
                description.last_write_date = hello.last_write_date;
                description.last_update_time = Some(at);
            }
        }
    }

    pub(super) fn failed(&mut self, at: Instant, error: &Error) {
        if error.kind() == ErrorKind::Cancelled {
            return;
        }
        self.history.add(at, Probe::Lost);
        let known = self.trouble.take().filter(|trouble| !trouble.is_over);
        self.trouble = Some(Trouble {
            since: known.as_ref().map_or(at, |trouble| trouble.since),
            last: at,
            checks: known.map_or(0, |trouble| trouble.checks) + 1,
            error: error.clone(),
            is_over: false,
        });
    }

    /// Stores the round-trip times that were measured with a check.
    pub(super) fn timed(&mut self, at: Instant, rtt: Rtt) {
        // While the server streams, a separate connection measures round trips, and only their
        // average is known.
        let sample = self.measured.take().unwrap_or(rtt.average);
        self.history.add(at, Probe::Answered(sample));
        let description = Arc::make_mut(&mut self.description);
        if description.server_type.is_available() {
            description.rtt = Some(rtt);
        }
    }

    pub(super) fn cleared(&mut self, at: Instant, clear: &PoolClear) {
        // Behind a load balancer, a clear may affect only one service and not the pool as a whole.
        if clear.service_id.is_none() {
            self.pool.generation = clear.generation.as_u64();
            self.pool.is_ready = false;
        }
        self.pool.cleared = Some((at, clear.cause.clone()));
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The check was answered with this round-trip time.
    Answered(Duration),
    /// The check failed.
    Lost,
}

/// A column of a sparkline: the worst check of its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// No check took place in the period or before it.
    Empty,
    /// The worst check in the period had this result.
    Checked(Probe),
    /// No check took place in the period; the last check before it had this result.
    Held(Probe),
}

/// The last checks of a server, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(VecDeque<(Instant, Probe)>);

impl History {
    /// Adds a check that ended at `at`.
    fn add(&mut self, at: Instant, probe: Probe) {
        push(&mut self.0, CAPACITY, (at, probe));
    }

    /// Summarizes the last `count` periods, oldest first; the last one contains `now`.
    ///
    /// Periods begin at multiples of their length, so that completed columns never change.
    pub(crate) fn columns(&self, now: Instant, period: Duration, count: usize) -> Vec<Column> {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let number = |at: Instant| at.as_nanos() / period;
        let last = number(now);
        let mut held = None;
        let mut probes = self.0.iter().peekable();
        let column = |back: u64| {
            // There were no checks before the epoch.
            let Some(own) = last.checked_sub(back) else {
                return Column::Empty;
            };
            while let Some((_, probe)) = probes.next_if(|(at, _)| number(*at) < own) {
                held = Some(*probe);
            }
            let mut worst = None;
            while let Some((_, probe)) = probes.next_if(|(at, _)| number(*at) == own) {
                held = Some(*probe);
                worst = Some(worst.map_or(*probe, |other| worse(other, *probe)));
            }
            match (worst, held) {
                (Some(worst), _) => Column::Checked(worst),
                (None, Some(held)) => Column::Held(held),
                (None, None) => Column::Empty,
            }
        };
        (0..count as u64).rev().map(column).collect()
    }
}

/// Describes an error and its stage in a few words, as an operator would.
pub(crate) fn brief(error: &Error) -> String {
    let stage = error.stage();
    let message = error.message().to_ascii_lowercase();
    let network = [
        ("refused", "refused"),
        ("reset", "connection reset"),
        ("closed", "connection closed"),
        ("unreachable", "unreachable"),
        ("broken pipe", "connection broken"),
        ("end of file", "connection closed"),
        ("eof", "connection closed"),
    ];
    let what = match error.kind() {
        ErrorKind::StalePrimary => return "stale primary".to_owned(),
        ErrorKind::SetName => return "wrong set name".to_owned(),
        ErrorKind::Cancelled => "cancelled".to_owned(),
        ErrorKind::Internal => "internal error".to_owned(),
        ErrorKind::Timeout => "timeout".to_owned(),
        ErrorKind::Protocol if stage == Stage::Tls => "certificate refused".to_owned(),
        ErrorKind::Protocol => "protocol error".to_owned(),
        ErrorKind::Command => match (&error.code_name(), error.code()) {
            (Some(name), _) => name.to_string(),
            (None, Some(code)) => format!("error {code}"),
            (None, None) => "command error".to_owned(),
        },
        _ if stage == Stage::Dns => return "name not found".to_owned(),
        _ => {
            let known = network.iter().find(|(word, _)| message.contains(word));
            known.map_or("network error", |(_, brief)| brief).to_owned()
        }
    };
    match stage {
        // The words already say that connecting failed, so omit the stage.
        Stage::Connect if what == "refused" || what == "unreachable" => what,
        stage => format!("{what} at {stage}"),
    }
}

fn worse(one: Probe, other: Probe) -> Probe {
    match (one, other) {
        (Probe::Answered(one), Probe::Answered(other)) => Probe::Answered(one.max(other)),
        _ => Probe::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_described_by_cause_and_stage() {
        let check = |kind, stage, message: &str, expected: &str| {
            let error = Error::new(kind, stage, message);
            assert_eq!(brief(&error), expected);
        };
        let network = ErrorKind::Network;
        check(network, Stage::Connect, "Connection refused (os error 111)", "refused");
        check(network, Stage::Hello, "Connection reset by peer", "connection reset at hello");
        check(
            network,
            Stage::Hello,
            "the server closed the connection",
            "connection closed at hello",
        );
        check(network, Stage::Dns, "failed to look up", "name not found");
        check(network, Stage::Hello, "odd", "network error at hello");
        check(ErrorKind::Timeout, Stage::Connect, "", "timeout at connect");
        check(ErrorKind::Protocol, Stage::Tls, "", "certificate refused at tls");
        check(ErrorKind::Command, Stage::Hello, "no", "command error at hello");
        check(ErrorKind::SetName, Stage::Hello, "", "wrong set name");
        let error = Error::new(ErrorKind::Command, Stage::Operation, "").with_code(91);
        assert_eq!(brief(&error), "error 91 at operation");
        let error = error.with_code_name("ShutdownInProgress");
        assert_eq!(brief(&error), "ShutdownInProgress at operation");
    }

    fn answered(millis: u64) -> Probe {
        Probe::Answered(Duration::from_millis(millis))
    }

    #[test]
    fn a_column_shows_the_worst_check_of_its_period_or_that_there_was_none() {
        let mut history = History::default();
        for (millis, probe) in [
            (100, answered(2)),
            (900, answered(5)),
            (1200, answered(1)),
            (1300, Probe::Lost),
            (1400, answered(1)),
        ] {
            history.add(Instant::from_millis(millis), probe);
        }
        assert_eq!(
            history.columns(Instant::from_millis(2999), Duration::from_secs(1), 3),
            [Column::Checked(answered(5)), Column::Checked(Probe::Lost), Column::Held(answered(1)),]
        );
    }

    #[test]
    fn only_the_last_checks_are_kept() {
        let mut history = History::default();
        for number in 0..2 * CAPACITY as u64 {
            history.add(Instant::from_millis(number), answered(number));
        }
        assert_eq!(history.0.len(), CAPACITY);
    }
}
