//! A deployment with test doubles for its connections, pools and readers, checked after every step.

use std::sync::Arc;

use sdam_core::{
    deployment::{Deployment, Input, Output, Outputs, Timer},
    ids::ServerId,
    time::Instant,
    topology::TopologyDescription,
};

use crate::{
    oracle::{self, Change, ensure},
    service::{self, Service},
    start::{Call, Start},
    step::{Step, address},
    verdict::Verdict,
    watch::{Timers, Watch},
};

/// A deployment, and the state that results from its outputs.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) deployment: Deployment,
    pub(crate) now: Instant,
    pub(crate) start: Start,
    /// The test doubles of each server, sorted by server id.
    pub(crate) watches: Vec<Watch>,
    pub(crate) published: Arc<TopologyDescription>,
    /// The description that results from the events.
    pub(crate) reported: Arc<TopologyDescription>,
    /// The look-up, choice or probe that the client has yet to complete.
    pub(crate) asked: Option<Output>,
    /// The time at which the last stall of this host ended.
    pub(crate) stalled: Option<Instant>,
    /// True if any timer has ever fired late. After that, the deployment may wait longer.
    pub(crate) was_late: bool,
    /// True if a request of a single-threaded client is in progress.
    pub(crate) is_requested: bool,
    /// The decisions that a detector may or must make in this call.
    pub(crate) verdict: Option<Verdict>,
    /// The services behind a load balancer.
    pub(crate) services: Vec<Service>,
}

/// An initial configuration and the steps to apply.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct History {
    /// The initial configuration.
    pub start: Start,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl History {
    /// Applies all steps, and closes the topology.
    ///
    /// # Errors
    ///
    /// Returns the violated invariant and the step that violates it.
    pub fn run(&self) -> Result<(), String> {
        let mut world = World::new(self.start)?;
        for (number, step) in (1..).zip(&self.steps) {
            world
                .apply(*step)
                .map_err(|violation| format!("{violation}, at step {number}, {step:?}"))?;
        }
        world.close()
    }
}

impl World {
    /// Opens a deployment.
    ///
    /// # Errors
    ///
    /// Returns the violated invariant.
    pub fn new(start: Start) -> Result<Self, String> {
        let mut world = Self {
            deployment: start.deployment(),
            now: Instant::from_millis(60_000),
            start,
            watches: Vec::new(),
            published: Arc::default(),
            reported: Arc::default(),
            asked: None,
            stalled: None,
            was_late: false,
            is_requested: false,
            verdict: None,
            services: service::services(start),
        };
        world.handle(Call::default(), Input::Open)?;
        Ok(world)
    }

    /// Closes the topology.
    ///
    /// # Errors
    ///
    /// Returns the violated invariant.
    pub fn close(mut self) -> Result<(), String> {
        self.handle(Call::default(), Input::Close)?;
        if !self.watches.is_empty() {
            return Err(format!("pools are left after the topology was closed: {self:?}"));
        }
        if self.deployment.deadline(true).is_some() {
            return Err("a timer is left after the topology was closed".into());
        }
        Ok(())
    }

    /// Returns the member, if it is in the topology.
    pub(crate) fn watch(&self, on: u8) -> Option<&Watch> {
        let server = self.deployment.description().server(&address(on))?;
        self.watch_of(server.id)
    }

    pub(crate) fn watch_of(&self, server: ServerId) -> Option<&Watch> {
        self.watches.iter().find(|watch| watch.id == server)
    }

    pub(crate) fn deadline(&self, server: ServerId, wanted: bool) -> Option<Instant> {
        self.deployment.deadline_of(Timer::Server(server), wanted)
    }

    /// Passes an input to the deployment and checks the outputs.
    pub(crate) fn handle(&mut self, call: Call, input: Input) -> Result<(), String> {
        let timers = self.timers();
        let outputs = self.deployment.handle(self.now, input);
        self.judge(call, &timers, &outputs)
    }

    /// Performs the outputs of a call, and checks both the outputs and the resulting state.
    pub(crate) fn judge(
        &mut self,
        call: Call,
        timers: &Timers,
        outputs: &Outputs,
    ) -> Result<(), String> {
        let after = Arc::clone(self.deployment.description());
        let before = std::mem::replace(&mut self.published, after);
        let change = Change { before: &before, after: &self.published };
        let opening = self.reported.servers().is_empty();
        if self.start.balanced && opening {
            oracle::opening(outputs)?;
        } else {
            oracle::order(outputs, opening)?;
        }
        oracle::publication(&change, outputs)?;
        oracle::events(&change, &mut self.reported, outputs)?;
        let known = call
            .about
            .and_then(|server| before.server_by_id(server))
            .is_some_and(|server| server.server_type.is_available());
        let mut gone = Vec::new();
        for output in outputs {
            self.follow(call, known, &before, output, &mut gone)?;
        }
        oracle::failed_checks(&self.published, outputs)?;
        let suspected = self.watches.iter().filter(|own| own.suspected.is_some());
        for own in suspected {
            let server = self.published.server_by_id(own.id);
            ensure(server.is_some_and(|server| server.server_type.is_available()), || {
                format!("server {} is suspected and Unknown", own.id)
            })?;
            ensure(own.answered != Some(self.now), || {
                format!("server {} answers and is suspected", own.id)
            })?;
        }
        let pools: Vec<_> = self.watches.iter().map(|own| (own.id, own.pool)).collect();
        oracle::state(&self.deployment, &pools)?;
        self.judge_trials()?;
        self.check_late_answers(call, &gone)?;
        if self.start.balanced && !opening {
            self.judge_services(call, outputs)?;
        }
        if self.start.is_inline() {
            return self.judge_request(call);
        }
        self.judge_timers(call, timers, outputs)?;
        self.judge_rest(call)
    }
}
