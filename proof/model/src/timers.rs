//! Invariants of timers, of servers between calls, and of a detector that probes silent servers.

use std::time::Duration;

use sdam_core::{
    deployment::{Input, Output, Outputs, Timer},
    ids::ServerId,
    time::Instant,
};

use crate::{
    oracle::ensure,
    start::{Call, Purpose, Start},
    watch::{Connection, Phase, Timers, Watch},
    world::World,
};

/// The decisions that a detector may or must make when a server's timer fires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) server: ServerId,
    may_ask: bool,
    pub(crate) may_convict: bool,
    must_convict: bool,
}

impl World {
    pub(crate) fn timers(&self) -> Timers {
        let servers = self.watches.iter().map(|watch| watch.id);
        servers.map(|server| (server, deadlines(self, server))).collect()
    }

    /// Checks that a server is woken if and only if its deadline is now earlier than in `before`.
    /// Calls that concern the server's timer or connections are excepted.
    pub(crate) fn judge_timers(
        &self,
        call: Call,
        before: &Timers,
        outputs: &Outputs,
    ) -> Result<(), String> {
        for (server, before) in before {
            if self.watch_of(*server).is_none() {
                continue;
            }
            let after = deadlines(self, *server);
            let nearer = after.iter().zip(before).any(|(after, before)| {
                after.is_some_and(|after| before.is_none_or(|before| after < before))
            });
            let own = call.purpose == Purpose::Server && call.about == Some(*server);
            let woken = outputs
                .iter()
                .any(|output| matches!(output, Output::Wake { server: own } if own == server));
            let right = woken == (nearer && !own);
            ensure(right, || {
                format!(
                    "server {server} is woken: {woken}; its deadlines were {before:?} and are \
                     {after:?}, in a call of its own: {own}"
                )
            })?;
        }
        Ok(())
    }

    /// Checks, after a call, that every monitored server has a timer or a pending request.
    pub(crate) fn judge_rest(&self, call: Call) -> Result<(), String> {
        for watch in &self.watches {
            let deadlines = deadlines(self, watch.id);
            let wrong = |what: &str| {
                let now = self.now;
                format!("{what}, at {now:?}: deadlines {deadlines:?}, {watch:?}")
            };
            if watch.deserted {
                let silent = deadlines == [None; 2] && !watch.checking;
                ensure(silent, || wrong("a server that is not checked has a timer"))?;
                continue;
            }
            let [deadline, wanted] = deadlines;
            waits(self, watch, deadline, wanted).map_err(&wrong)?;
            if call.due == Some(Timer::Server(watch.id)) {
                let next = if call.wanted { wanted } else { deadline };
                ensure(next.is_none_or(|next| next > self.now), || {
                    wrong("the timer is due again at once")
                })?;
            }
        }
        Ok(())
    }
}

fn deadlines(world: &World, server: ServerId) -> [Option<Instant>; 2] {
    [false, true].map(|wanted| world.deadline(server, wanted))
}

fn waits(
    world: &World,
    watch: &Watch,
    deadline: Option<Instant>,
    wanted: Option<Instant>,
) -> Result<(), &'static str> {
    let by = |deadline: Option<Instant>, latest| deadline.is_some_and(|own| own <= latest);
    let (now, start) = (world.now, world.start);
    let hold = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    for own in watch.connections() {
        if own.is_asked() {
            hold(own.deadline.is_none_or(|limit| by(deadline, limit)), "a request has no timer")?;
        }
    }
    hold(!watch.rush.is_due, "F-35, F-51: the next check does not begin at once")?;
    hold(watch.checking == watch.check.is_asked(), "a check is in flight without a request")?;
    hold(
        watch.streamed || watch.ping.phase == Phase::Closed,
        "G-7: round trips are measured although checks do not wait",
    )?;
    if watch.checking {
        return Ok(());
    }
    hold(
        by(wanted, now + Start::MINIMUM),
        "F-44: an idle server that selections wait for is due late",
    )?;
    hold(by(deadline, now + start.heartbeat()), "F-24: an idle server is not checked")?;
    let description = world.published.server_by_id(watch.id);
    let known = description.is_some_and(|server| server.server_type.is_available());
    hold(
        !known || watch.check.phase != Phase::Closed || by(deadline, now + Start::MINIMUM),
        "F-71: a known server is not watched",
    )
}

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

    /// Returns whether the probed server has a timer that fires soon, if it needs one. It needs one
    /// if several answers are late, another server has answered since the probe began, and no wait
    /// was longer than usual.
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
