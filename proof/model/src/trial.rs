//! The invariants of a detector that probes silent servers.

use std::time::Duration;

use sdam_core::{deployment::Input, ids::ServerId, time::Instant};

use crate::{
    oracle::ensure,
    start::{Call, Start},
    verdict::Verdict,
    watch::{Connection, Watch},
    world::World,
};

/// The maximum time between a probe and the check on a second connection that confirms the silence.
const LATEST_CHECK: Duration = Duration::from_millis(600);

/// The maximum time between an unanswered ping and the probe.
const HURRY: Duration = Duration::from_millis(100);

/// Part of the error message of a server that the detector marked Unknown.
const CONVICTED: &str = "not even to a ping";

impl World {
    pub(crate) fn late(&mut self, server: ServerId) -> Result<(), String> {
        let age = self.now.since(Instant::EPOCH).saturating_sub(Start::MINIMUM);
        let sent = Instant::EPOCH + age;
        self.double(server, |own| own.late = Some(own.late.map_or(sent, |late| late.min(sent))));
        let call = Call { about: Some(server), ..Call::default() };
        self.handle(call, Input::Late { server, sent })
    }

    /// Records what the detector may decide in the next call for the server's timer.
    pub(crate) fn prepare_verdict(&mut self, server: ServerId) {
        let evidence = self.watch_of(server).filter(|_| self.start.detecting);
        self.verdict = evidence.map(|own| {
            let is_late = |since: Instant| since + Start::FLOOR <= self.now;
            let after = |begun: Instant| {
                let since = self.silent_since(own).filter(|since| is_late((*since).max(begun)));
                since.count()
            };
            let late = own.late.map(|late| late.max(self.excuse(own)));
            let is_known = self.is_known(server);
            let witness = self.witness(server);
            let is_witnessed = own.asked.is_some_and(|asked| witness > Some(asked));
            let probed = own.probe.since;
            Verdict {
                server,
                may_ask: is_known && (after(Instant::EPOCH) > 0 || late.is_some_and(is_late)),
                may_convict: is_known && is_witnessed && own.asked.map_or(0, after) > 1,
                must_convict: is_known
                    && is_witnessed
                    && self.has_usual_waits(own)
                    && own.probe.is_asked()
                    && own.asked.is_some_and(|asked| probed <= asked + HURRY)
                    && after(probed) > 1
                    && self.now.since(probed) <= Start::FLOOR + LATEST_CHECK,
            }
        });
    }

    /// Checks which decision the detector made in a call for the server's timer.
    pub(crate) fn judge_verdict(&mut self) -> Result<(), String> {
        let Some(verdict) = self.verdict.take().filter(|verdict| verdict.must_convict) else {
            return Ok(());
        };
        ensure(!self.is_known(verdict.server), || {
            format!("a silent server stays known: {:?}", self.watch_of(verdict.server))
        })
    }

    /// Checks that the detector was allowed to mark the server Unknown, if `error` comes from the
    /// detector.
    pub(crate) fn judge_error(&self, server: ServerId, error: &str) -> Result<(), String> {
        ensure(self.may_convict(server) || !error.contains(CONVICTED), || {
            format!("server {server} is found silent by {:?}", self.watch_of(server))
        })
    }

    pub(crate) fn may_convict(&self, server: ServerId) -> bool {
        self.verdict.is_some_and(|own| own.server == server && own.may_convict)
    }

    /// Checks, after a call, which servers the detector probes.
    pub(crate) fn judge_trials(&mut self) -> Result<(), String> {
        let asked: Vec<_> = self
            .watches
            .iter()
            .map(|own| self.deployment.silence(own.id).and_then(|silence| silence.asked))
            .collect();
        for (own, asked) in self.watches.iter().zip(&asked) {
            let verdict = self.verdict.filter(|verdict| verdict.server == own.id);
            let is_begun = own.asked.is_none() && asked.is_some();
            ensure(!is_begun || verdict.is_some_and(|verdict| verdict.may_ask), || {
                format!("server {} is asked although nothing is overdue: {own:?}", own.id)
            })?;
            ensure(asked.is_none() || self.is_known(own.id) && !own.deserted, || {
                format!("server {} is asked although it is not known", own.id)
            })?;
            ensure(asked.is_none() || own.answered < Some(self.now), || {
                format!("server {} has answered and is asked", own.id)
            })?;
            ensure(asked.is_some() || own.probe.is_closed(), || {
                format!("server {} is not asked, but its probe is {:?}", own.id, own.probe)
            })?;
            ensure(asked.is_none_or(|asked| self.proceeds(own, asked)), || {
                format!("the trial of server {} does not go on: {own:?}", own.id)
            })?;
        }
        for (own, asked) in self.watches.iter_mut().zip(asked) {
            own.asked = asked;
        }
        Ok(())
    }

    /// Returns false if the probed server should have a timer that fires soon, but has none. It
    /// should have one if several answers are late and no wait was longer than usual.
    fn proceeds(&self, own: &Watch, asked: Instant) -> bool {
        let silent = self.silent_since(own).filter(|since| *since <= self.now).count();
        let is_witnessed = self.witness(own.id) > Some(asked);
        let latest = self.now + Start::FLOOR + HURRY;
        !(silent > 1 && is_witnessed && self.has_usual_waits(own))
            || self.deadline(own.id, false).is_some_and(|deadline| deadline <= latest)
    }

    /// Returns, for each outstanding answer, the time from which it is late.
    fn silent_since<'w>(&self, own: &'w Watch) -> impl Iterator<Item = Instant> + use<'w> {
        let (heartbeat, excuse) = (self.start.heartbeat(), self.excuse(own));
        let asked = own.connections().into_iter().filter(|connection| connection.is_asked());
        asked.map(move |connection| connection.due(heartbeat).max(excuse))
    }

    /// Returns the time before which none of the server's answers counts as late.
    fn excuse(&self, own: &Watch) -> Instant {
        own.answered.max(self.stalled).unwrap_or_default()
    }

    /// Returns whether all round trips were short and all timers fired in time.
    fn has_usual_waits(&self, own: &Watch) -> bool {
        !self.was_late && own.slowest == Duration::ZERO
    }

    fn witness(&self, server: ServerId) -> Option<Instant> {
        let others = self.watches.iter().filter(|own| own.id != server);
        others.filter_map(|own| own.answered).max()
    }

    fn is_known(&self, server: ServerId) -> bool {
        let described = self.published.server_by_id(server);
        described.is_some_and(|server| server.server_type.is_available())
    }
}

impl Connection {
    /// Returns the time at which the answer to the outstanding request is due.
    pub(crate) fn due(&self, heartbeat: Duration) -> Instant {
        self.since + if self.awaited { heartbeat } else { Duration::ZERO }
    }
}
