//! Suspicion of servers whose answers are overdue.

use alloc::vec::Vec;
use core::{mem, time::Duration};

use super::{Deployment, server::Server};
use crate::{
    error::{Error, ErrorKind, Stage},
    event::EventKind,
    ids::ServerId,
    output::{Output, Outputs},
    silence::Silence,
    time::Instant,
};

/// The minimum time for which an answer may be late before it is overdue.
const PATIENCE: Duration = Duration::from_secs(1);

/// The same, as a multiple of the 90th percentile of the round-trip times.
const PATIENCE_IN_TRIPS: u32 = 8;

/// The delay of a timer from which on this host counts as stalled, which excuses all servers.
const STALL: Duration = Duration::from_millis(500);

/// The evidence that concerns all servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// The two servers that answered last, the later one first. Two are enough to find the last
    /// answer of any other server than a given one.
    latest: [Option<(ServerId, Instant)>; 2],
    /// The end of the last stall of this host.
    pub(super) stalled: Option<Instant>,
    /// The servers that are overdue and not suspected, because no other server has answered since.
    /// A list, so that an answer need not look at all servers.
    overdue: Vec<ServerId>,
}

/// The evidence that concerns one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    last: Option<Instant>,
    timeouts: u32,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Standing {
    /// The server is Unknown, or has never answered.
    #[default]
    Excused,
    Prompt,
    Overdue,
    Suspected(Instant),
}

impl Evidence {
    /// Returns when a server other than `server` last answered.
    fn witness(&self, server: ServerId) -> Option<Instant> {
        let mut others = self.latest.iter().flatten().filter(|(other, _)| *other != server);
        others.next().map(|(_, at)| *at)
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
    /// Returns when the outstanding answers become late. An answer on one connection excuses the
    /// other, and a stall of this host excuses both.
    fn expected(&self, stalled: Option<Instant>) -> Option<Instant> {
        let outstanding = [self.check.expected(), self.ping.expected()];
        let first = outstanding.into_iter().flatten().min()?;
        Some(first.max(self.answers.last?).max(stalled.unwrap_or_default()))
    }

    /// Returns when the server's answer is overdue; `None` if it is already, or nothing is known
    /// about the server.
    pub(super) fn overdue(&self, stalled: Option<Instant>) -> Option<Instant> {
        let is_prompt = self.answers.standing == Standing::Prompt;
        is_prompt.then(|| self.expected(stalled))?.map(|expected| expected + self.patience())
    }

    fn patience(&self) -> Duration {
        let p90 = self.rtt.rtt().map_or(Duration::ZERO, |rtt| rtt.p90);
        PATIENCE.max(p90.saturating_mul(PATIENCE_IN_TRIPS))
    }

    /// Ends a suspicion, and emits the event that says so.
    pub(super) fn clear_suspicion(&mut self, now: Instant, answered: bool, out: &mut Outputs) {
        let standing = if answered { Standing::Prompt } else { Standing::Excused };
        if let Standing::Suspected(since) = mem::replace(&mut self.answers.standing, standing) {
            out.emit(EventKind::ServerSuspicionEnded {
                server: self.id,
                address: self.check.address().clone(),
                duration: now.since(since),
                answered,
            });
        }
    }
}

impl Deployment {
    /// Returns the evidence that the server no longer answers; `None` if it is not monitored.
    pub fn silence(&self, server: ServerId) -> Option<Silence> {
        let own = self.server(server)?;
        let Answers { last, timeouts, standing } = own.answers;
        let suspected = match standing {
            Standing::Suspected(since) => Some(since),
            Standing::Excused | Standing::Prompt | Standing::Overdue => None,
        };
        let expected = own.expected(self.evidence.stalled);
        Some(Silence { answered: last, expected, suspected, timeouts })
    }

    /// Handles an answer of the server that arrived at `at`. If the server stays or becomes Unknown,
    /// the consequences of the answer excuse it again.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        (server, at): (ServerId, Instant),
        may_be_known: bool,
        out: &mut Outputs,
    ) {
        let Some(own) = self.server_mut(server) else {
            return;
        };
        own.answers.last = own.answers.last.max(Some(at));
        own.answers.timeouts = 0;
        // An Unknown server whose stale reply made it prompt is excused here.
        own.clear_suspicion(now, may_be_known, out);
        self.evidence.answered(server, at);
        for other in mem::take(&mut self.evidence.overdue) {
            self.suspect(now, other, out);
        }
    }

    /// Handles an answer of the server to an operation or a pool, after its consequences.
    pub(super) fn answered_elsewhere(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let stalled = self.evidence.stalled;
        let deadline = |own: &Self| own.server(server).and_then(|own| own.deadline(true, stalled));
        let before = deadline(self);
        let is_known = self.is_known(server);
        self.answered(now, (server, now), is_known, out);
        // If the server was Unknown, an outstanding answer can be overdue from now on.
        let after = deadline(self);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            out.push(Output::Wake { server });
        }
    }

    /// Takes an error of an operation into account.
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
        let deadline =
            self.server(server).and_then(|own| own.deadline(false, self.evidence.stalled));
        if deadline.is_some_and(|deadline| now.since(deadline) >= STALL) {
            self.evidence.stalled = Some(now);
        }
    }

    /// Notes that the server's answer is overdue, if it is at `now`.
    pub(super) fn await_answer(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let stalled = self.evidence.stalled;
        let overdue = self.server(server).and_then(|own| own.overdue(stalled));
        if overdue.is_some_and(|overdue| overdue <= now) {
            self.with(server, |own| own.answers.standing = Standing::Overdue);
            self.suspect(now, server, out);
        }
    }

    /// Suspects an overdue server if another one has answered since its answer was expected.
    fn suspect(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let witness = self.evidence.witness(server);
        let stalled = self.evidence.stalled;
        let Some(own) = self.server_mut(server) else {
            return;
        };
        if own.answers.standing != Standing::Overdue {
            return;
        }
        let expected = own.expected(stalled);
        let Some(expected) = expected.filter(|expected| *expected + own.patience() <= now) else {
            // The request has ended, or the host was stalled.
            return own.hastened(stalled, out, |own, _| own.answers.standing = Standing::Prompt);
        };
        if witness.is_none_or(|at| at <= expected) {
            return self.evidence.overdue.push(server);
        }
        own.answers.standing = Standing::Suspected(now);
        out.emit(EventKind::ServerSuspected {
            server,
            address: own.check.address().clone(),
            silence: own.answers.last.map_or(Duration::ZERO, |last| now.since(last)),
        });
    }
}

#[cfg(feature = "model")]
impl Deployment {
    /// Writes what determines the next suspicion of the server. Omits round-trip times and the ages
    /// of earlier answers and stalls, which decide later ones: a search merges states that differ in
    /// them only.
    pub(super) fn write_suspicion(
        &self,
        now: Instant,
        own: &Server,
        hasher: &mut impl core::hash::Hasher,
    ) {
        use core::hash::Hash;

        let stalled = self.evidence.stalled;
        let expected = own.expected(stalled);
        let witness = self.evidence.witness(own.id);
        mem::discriminant(&own.answers.standing).hash(hasher);
        own.overdue(stalled).map(|overdue| overdue.since(now)).hash(hasher);
        (expected.is_some(), witness.is_some() && expected < witness).hash(hasher);
    }
}
