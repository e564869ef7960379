//! Invariants of timers, and of servers between calls.

use sdam_core::{
    deployment::{Output, Outputs, Timer},
    ids::ServerId,
    time::Instant,
};

use crate::{
    oracle::ensure,
    start::{Call, Purpose, Start},
    watch::{Phase, Timers, Watch},
    world::World,
};

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
            // A server that fails may also be woken, because the timer for its overdue answer is
            // removed.
            let described = self.published.server_by_id(*server);
            let lost = described.is_some_and(|server| !server.server_type.is_available());
            let right = if woken { !own && (nearer || lost) } else { own || !nearer };
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
