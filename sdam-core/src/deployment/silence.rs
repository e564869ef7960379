//! Suspects servers whose answers are overdue.

use alloc::vec::Vec;
use core::{mem, time::Duration};

use super::{Deployment, Outputs, server::Server, trial::Trial};
use crate::{
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    ids::ServerId,
    options::Detector,
    server::Silence,
    time::Instant,
};

/// The shortest delay after which a late answer counts as overdue.
const PATIENCE: Duration = Duration::from_secs(1);

/// The delay after which a late answer counts as overdue, as a multiple of the 90th percentile of
/// the round-trip times, unless [`PATIENCE`] is longer.
const PATIENCE_IN_TRIPS: u32 = 8;

/// If a timer fires at least this late, this host is assumed to have stalled, so no server is
/// suspected.
pub(super) const STALL: Duration = Duration::from_millis(500);

/// The evidence, gathered from all servers, for suspecting those whose answers are overdue.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// The two servers that answered last, the later one first. Two are enough to find the latest
    /// answer from any server other than a given one.
    latest: [Option<(ServerId, Instant)>; 2],
    /// The overdue servers that are not suspected, because no other server has answered since. The
    /// list avoids a search of all servers on each answer.
    overdue: Vec<ServerId>,
    /// The servers whose trials are waiting for an answer from another server.
    pub(super) undecided: Vec<ServerId>,
}

/// The failure detector, and the evidence that answers appear late only because this host is slow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Host {
    /// The end of this host's last stall.
    pub(super) stalled: Option<Instant>,
    /// The number of doubts about the speed of this host: each stall adds one, and each answer in
    /// time subtracts one. Doubts make waits longer.
    pub(super) doubts: u8,
    pub(super) detector: Option<Detector>,
}

impl Host {
    /// The maximum of `doubts` (Lifeguard: "LHM").
    const MAX_DOUBTS: u8 = 8;

    pub(super) fn new(detector: Option<Detector>) -> Self {
        Self { detector, ..Self::default() }
    }

    /// Returns how long to wait if the usual wait is `usual`: longer if this host seems to be slow.
    pub(super) fn extended(self, usual: Duration) -> Duration {
        usual.saturating_mul(u32::from(self.doubts) + 1)
    }

    fn stalled(&mut self, now: Instant) {
        self.stalled = Some(now);
        self.doubts = (self.doubts + 1).min(Self::MAX_DOUBTS);
    }
}

/// The answers of one server, and the conclusions drawn from them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    pub(super) last: Option<Instant>,
    timeouts: u32,
    pub(super) standing: Standing,
    pub(super) trial: Trial,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Standing {
    /// The server is Unknown, or has never answered.
    #[default]
    Excused,
    Prompt,
    Overdue,
    Suspected(Instant),
}

impl Evidence {
    /// Returns the time of the last answer from any server other than `server`.
    pub(super) fn witness(&self, server: ServerId) -> Option<Instant> {
        let mut others = self.latest.iter().flatten().filter(|(other, _)| *other != server);
        others.next().map(|(_, at)| *at)
    }

    /// Returns the servers that answered last, excluding `server`.
    pub(super) fn witnesses(&self, server: ServerId) -> impl Iterator<Item = ServerId> + use<> {
        let others = self.latest.into_iter().flatten().map(|(other, _)| other);
        others.filter(move |other| *other != server)
    }

    fn answered(&mut self, server: ServerId, at: Instant) {
        let [first, second] = &mut self.latest;
        if first.is_some_and(|(other, _)| other != server) {
            mem::swap(first, second);
        }
        *first = Some((server, at));
    }
}

impl Server {
    /// Returns the time at which the outstanding answers become late. Any answer from the server,
    /// or the end of a stall of this host, restarts the wait on all connections.
    fn expected(&self, host: Host) -> Option<Instant> {
        let outstanding = [self.check.expected(), self.ping.expected()];
        self.excused(outstanding.into_iter().flatten().min()?, host)
    }

    /// Returns the time from which an answer that was due at `since` counts as late: the latest of
    /// `since`, the time of the server's last answer, and the end of this host's last stall. `None`
    /// if the server has never answered.
    pub(super) fn excused(&self, since: Instant, host: Host) -> Option<Instant> {
        Some(since.max(self.answers.last?).max(host.stalled.unwrap_or_default()))
    }

    /// Returns the time at which the outstanding answer becomes overdue. `None` if no answer is
    /// outstanding, if the answer is already overdue, or if the server is Unknown.
    pub(super) fn overdue(&self, host: Host) -> Option<Instant> {
        let is_prompt = self.answers.standing == Standing::Prompt;
        is_prompt.then(|| self.expected(host))?.map(|expected| expected + self.patience(host))
    }

    /// Returns how late an answer may be before it is overdue.
    pub(super) fn patience(&self, host: Host) -> Duration {
        if let Some(detector) = host.detector {
            return host.extended(detector.patience(&self.rtt));
        }
        let p90 = self.rtt.rtt().map_or(Duration::ZERO, |rtt| rtt.p90);
        PATIENCE.max(p90.saturating_mul(PATIENCE_IN_TRIPS))
    }

    /// Suspects the server, unless it is suspected already.
    pub(super) fn accuse(&mut self, now: Instant, out: &mut Outputs) {
        if let Standing::Suspected(_) = self.answers.standing {
            return;
        }
        self.answers.standing = Standing::Suspected(now);
        out.emit(EventKind::ServerSuspected {
            server: self.id,
            address: self.check.address.clone(),
            silence: self.answers.last.map_or(Duration::ZERO, |last| now.since(last)),
        });
    }

    /// Ends any suspicion and any trial of the server. The end of a suspicion is emitted as an
    /// event.
    pub(super) fn clear_suspicion(&mut self, now: Instant, answered: bool, out: &mut Outputs) {
        self.acquit(out);
        let standing = if answered { Standing::Prompt } else { Standing::Excused };
        if let Standing::Suspected(since) = mem::replace(&mut self.answers.standing, standing) {
            out.emit(EventKind::ServerSuspicionEnded {
                server: self.id,
                address: self.check.address.clone(),
                duration: now.since(since),
                answered,
            });
        }
    }
}

impl Deployment {
    /// Returns the evidence that the server no longer answers; `None` if it is not monitored.
    pub fn silence(&self, server: ServerId) -> Option<Silence> {
        let own = self.servers.get(server)?;
        let Answers { last, timeouts, standing, trial } = own.answers;
        let suspected = match standing {
            Standing::Suspected(since) => Some(since),
            Standing::Excused | Standing::Prompt | Standing::Overdue => None,
        };
        let expected = own.expected(self.servers.host());
        Some(Silence { answered: last, expected, suspected, asked: trial.asked(), timeouts })
    }

    /// Handles an answer that arrived from the server at `at`. If the answer makes the server
    /// Unknown, its standing returns to `Excused` when the effects of the answer are applied.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        (server, at): (ServerId, Instant),
        may_be_known: bool,
        out: &mut Outputs,
    ) {
        let Some(own) = self.servers.get_mut(server) else {
            return;
        };
        own.answers.last = own.answers.last.max(Some(at));
        own.answers.timeouts = 0;
        // Also corrects the standing of an Unknown server that was marked as prompt because of an
        // earlier stale reply.
        own.clear_suspicion(now, may_be_known, out);
        self.evidence.answered(server, at);
        self.trust_host();
        for other in mem::take(&mut self.evidence.overdue) {
            self.suspect(now, other, out);
        }
    }

    /// Treats an answer in time as a sign that this host has become faster, which shortens waits.
    fn trust_host(&mut self) {
        if let Some(doubts) = self.servers.host().doubts.checked_sub(1) {
            self.servers.host_mut().doubts = doubts;
        }
    }

    /// Handles an answer that an operation or a pool got from the server. Called after the effects
    /// of the answer have been applied.
    pub(super) fn answered_elsewhere(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let is_known = self.is_known(server);
        self.answered(now, (server, now), is_known, out);
        self.retry(now, out);
    }

    /// Takes an operation's error into account as evidence about the server.
    pub(super) fn weigh(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &Error,
        out: &mut Outputs,
    ) {
        match (error.kind(), error.stage()) {
            (ErrorKind::Command, _) => self.answered_elsewhere(now, server, out),
            (ErrorKind::Timeout, Stage::Operation) => self.with(server, |own| {
                own.answers.timeouts = own.answers.timeouts.saturating_add(1);
            }),
            _ => {}
        }
    }

    /// Notes a stall of this host, if the timer of `server` is handled late.
    pub(super) fn note_stall(&mut self, now: Instant, server: ServerId) {
        let host = self.servers.host();
        let is_stalled = self.servers.get(server).is_some_and(|own| {
            // The first check of a new server is due at the epoch, so its lateness does not
            // indicate a stall.
            let deadline = own.deadlines().idle.filter(|deadline| *deadline > Instant::EPOCH);
            deadline.is_some_and(|deadline| now.since(deadline) >= own.tolerance(host))
        });
        if is_stalled {
            self.servers.host_mut().stalled(now);
        }
    }

    /// Marks the server as overdue if its answer is overdue at `now`.
    pub(super) fn await_answer(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let host = self.servers.host();
        let overdue = self.servers.get(server).and_then(|own| own.overdue(host));
        if overdue.is_some_and(|overdue| overdue <= now) {
            self.with(server, |own| own.answers.standing = Standing::Overdue);
            self.suspect(now, server, out);
        }
    }

    /// Suspects an overdue server if another server has answered since the overdue answer was
    /// expected.
    fn suspect(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let witness = self.evidence.witness(server);
        let host = self.servers.host();
        let Some(own) = self.servers.get_mut(server) else {
            return;
        };
        if own.answers.standing != Standing::Overdue {
            return;
        }
        let is_late = |expected: &Instant| *expected + own.patience(host) <= now;
        let Some(expected) = own.expected(host).filter(is_late) else {
            // The request has ended, or the host was stalled, so the answer is not overdue.
            own.answers.standing = Standing::Prompt;
            return;
        };
        if witness.is_none_or(|at| at <= expected) {
            return self.evidence.overdue.push(server);
        }
        own.accuse(now, out);
    }
}

#[cfg(feature = "model")]
impl Deployment {
    /// Writes the state that determines the next suspicion of the server. Omits round-trip times
    /// and the ages of earlier answers and stalls, which affect only later suspicions. A search
    /// therefore merges states that differ only in these values.
    pub(super) fn write_suspicion(
        &self,
        now: Instant,
        own: &Server,
        hasher: &mut impl core::hash::Hasher,
    ) {
        use core::hash::Hash;

        let host = self.servers.host();
        let expected = own.expected(host);
        let witness = self.evidence.witness(own.id);
        mem::discriminant(&own.answers.standing).hash(hasher);
        own.answers.trial.write_key(now, hasher);
        own.next_judgment(host).map(|judgment| judgment.since(now)).hash(hasher);
        own.overdue(host).map(|overdue| overdue.since(now)).hash(hasher);
        (expected.is_some(), witness.is_some() && expected < witness).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answers_of_two_servers_are_kept() {
        let [a, b, c] = [1, 2, 3].map(ServerId::from_u64);
        let mut evidence = Evidence::default();
        let at = Instant::from_millis;
        for (server, millis) in [(a, 1), (b, 2), (b, 3)] {
            evidence.answered(server, at(millis));
        }
        assert_eq!(evidence.witness(a), Some(at(3)));
        assert_eq!(evidence.witness(b), Some(at(1)));
        assert_eq!(evidence.witness(c), Some(at(3)));
        evidence.answered(a, at(4));
        assert_eq!(evidence.witness(b), Some(at(4)));
        assert_eq!(evidence.witness(a), Some(at(3)));
    }
}
