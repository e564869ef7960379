//! A deployment with test doubles for its connections, pools and readers, checked after every step,
//! and a key that distinguishes the states of the deployment.

use std::{hash::Hasher, sync::Arc};

use sdam_core::{
    deployment::{Deployment, Input, Output, Outputs, Timer},
    ids::ServerId,
    time::Instant,
    topology::TopologyDescription,
};

use crate::{
    balanced::{Service, services},
    oracle::{self, Change, ensure},
    start::{Call, Start},
    step::{Step, address},
    timers::Verdict,
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
            services: services(start),
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

impl World {
    /// Returns a hash of all parts of the state that influence later behaviour. The hashes of two
    /// different states are equal with probability 2^-128.
    pub(crate) fn key(&self) -> u128 {
        let mut hasher = Mixer::default();
        self.deployment.write_key(self.now, &mut hasher);
        self.write_services(&mut hasher);
        hasher.key()
    }
}

/// Two independent 64-bit hashes, computed by folded multiplication with different constants.
#[derive(Default)]
struct Mixer([u64; 2]);

impl Mixer {
    fn mix(&mut self, word: u64) {
        let constants = [
            (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03),
            (0xaef1_7502_108e_f2d9, 0x8bb8_4b93_962e_acc9),
        ];
        for (lane, (first, second)) in self.0.iter_mut().zip(constants) {
            let wide = u128::from(*lane ^ word ^ first) * u128::from(second | 1_u64);
            // The addition keeps earlier input in the hash if the product is zero.
            *lane = (wide as u64 ^ (wide >> 64) as u64).wrapping_add(lane.rotate_left(23));
        }
    }

    fn key(&self) -> u128 {
        let [high, low] = self.0;
        u128::from(high) << 64 | u128::from(low)
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (word, byte) in word.iter_mut().zip(chunk) {
                *word = *byte;
            }
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.key() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::World;
    use crate::{
        start::Start,
        step::{Failure, MemberStep, OperationError, Reply, Role, Step},
    };

    #[test]
    fn equal_states_have_equal_keys_on_every_path() {
        let found = Step::Member(0, MemberStep::Reply(Reply::member(Role::Primary)));
        let refused = Step::Member(0, MemberStep::Failure(Failure::Command(0)));
        let broken =
            Step::Member(0, MemberStep::Error { error: OperationError::Broken, late: false });
        let key = |history: &[Step]| {
            let mut world = World::new(Start::DISCOVERY).unwrap();
            for step in history {
                world.apply(*step).unwrap();
            }
            world.key()
        };
        assert_eq!(key(&[found, refused]), key(&[found, refused, refused]));
        assert_eq!(key(&[found, refused, found]), key(&[found, refused, found, refused, found]));
        assert_ne!(key(&[found]), key(&[found, refused]));
        assert_ne!(
            key(&[found, refused]),
            key(&[found, broken]),
            "the errors have different stages"
        );
        assert_ne!(
            key(&[found]),
            key(&[found, refused, found]),
            "there may be connections of an earlier generation"
        );
    }
}
