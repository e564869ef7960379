//! A machine with doubles of its pools and readers, checked after every step.

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::{
    app_error::{AppError, Cause, ErrorOutcome},
    error::{ErrorKind, ServerError, Stage},
    ids::{Generation, ObjectId, ServerId},
    machine::{Effects, Input, TopologyMachine},
    options::Options,
    server::{Rtt, WireVersions},
    time::Instant,
    topology::TopologyDescription,
};

use crate::{
    oracle::{self, Change, Pool},
    step::{self, Failure, MEMBERS, OperationError, Reply, Step, address, members},
};

/// The constant time of all steps: no rule of the machine depends on it.
const NOW: Instant = Instant::from_millis(1);

/// The round-trip time of every check.
const RTT: Rtt = Rtt {
    average: std::time::Duration::from_millis(1),
    minimum: std::time::Duration::from_millis(1),
    p90: std::time::Duration::from_millis(1),
};

/// A topology, and the state that its effects produce.
#[derive(Clone, Debug)]
pub struct CheckedMachine {
    pub(crate) machine: TopologyMachine,
    pub(crate) pools: BTreeMap<ServerId, Pool>,
    /// The published description.
    pub(crate) published: Arc<TopologyDescription>,
    /// The description according to the events.
    pub(crate) reported: Arc<TopologyDescription>,
}

/// The initial configuration of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Start {
    /// The seeds, one bit each; none means all.
    pub seeds: u8,
    /// `directConnection=true`, which uses the first seed alone.
    pub direct: bool,
    /// True if `replicaSet` is given.
    pub named: bool,
}

impl Start {
    /// Three seeds and no other options.
    pub const DISCOVERY: Self = Self {
        seeds: 0b111,
        direct: false,
        named: false,
    };

    fn options(self) -> Options {
        let mask = match self.seeds % (1 << MEMBERS) {
            0 => 0b111,
            seeds => seeds,
        };
        let count = if self.direct { 1 } else { usize::from(MEMBERS) };
        let mut options = Options::new(members(mask).take(count).collect());
        options.direct_connection = self.direct.then_some(true);
        options.replica_set = self.named.then(|| step::SET.into());
        options.wire_versions = WireVersions { min: 0, max: 29 };
        options
    }
}

/// An initial configuration, and steps.
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
    /// The invariant that is broken, and the step that breaks it.
    pub fn run(&self) -> Result<(), String> {
        let mut machine = CheckedMachine::new(self.start)?;
        for (number, step) in (1..).zip(&self.steps) {
            machine
                .apply(*step)
                .map_err(|violation| format!("{violation}, at step {number}, {step}"))?;
        }
        machine.close()
    }
}

impl CheckedMachine {
    /// Opens a topology.
    ///
    /// # Errors
    ///
    /// The invariant that is broken.
    pub fn new(start: Start) -> Result<Self, String> {
        let machine = TopologyMachine::new(&start.options(), ObjectId::default());
        let mut checked = Self {
            machine,
            pools: BTreeMap::new(),
            published: Arc::default(),
            reported: Arc::default(),
        };
        let effects = checked.machine.handle(NOW, Input::Open);
        checked.perform(&effects, None)?;
        Ok(checked)
    }

    /// Applies `step`, and returns whether anything has changed.
    ///
    /// A step for a member that does not exist, or for a connection that cannot exist, does
    /// nothing.
    ///
    /// # Errors
    ///
    /// The invariant that is broken.
    pub fn apply(&mut self, step: Step) -> Result<bool, String> {
        if let Step::Hosts(mask) = step {
            let hosts: Vec<_> = members(mask).collect();
            let effects = self.machine.handle(NOW, Input::Hosts(&hosts));
            return self.perform(&effects, None);
        }
        let Some(on) = step.on() else {
            return Ok(false);
        };
        let Some(server) = self.server(on) else {
            return Ok(false);
        };
        match step {
            Step::Reply { reply, .. } => self.check_ended(server, Ok((on, reply))),
            Step::Failure { failure, .. } => self.check_ended(server, Err((on, failure))),
            Step::Handshake { reply, late, .. } => self.handshake(server, on, reply, late),
            Step::Error { error, late, .. } => self.error(server, on, error, late),
            Step::MonitorDied { .. } => {
                let effects = self.machine.handle(NOW, Input::MonitorDied { server });
                self.perform(&effects, Some(server))
            }
            Step::Hosts(_) => Ok(false),
        }
    }

    /// Closes the topology.
    ///
    /// # Errors
    ///
    /// The invariant that is broken.
    pub fn close(mut self) -> Result<(), String> {
        let effects = self.machine.handle(NOW, Input::Close);
        self.perform(&effects, None)?;
        if !self.pools.is_empty() {
            return Err(format!(
                "pools are left after the topology was closed: {self:?}"
            ));
        }
        Ok(())
    }

    fn server(&self, on: u8) -> Option<ServerId> {
        let server = self.machine.description().server(&address(on))?;
        Some(server.id)
    }

    fn check_ended(
        &mut self,
        server: ServerId,
        outcome: Result<(u8, Reply), (u8, Failure)>,
    ) -> Result<bool, String> {
        let failed = outcome.is_err();
        let input = Input::Checked {
            server,
            outcome: outcome
                .map(|(on, reply)| reply.hello(on))
                .map_err(|(on, failure)| failure.error(on)),
            // The engine has an RTT sample of every check that was answered.
            rtt: (!failed).then_some(RTT),
        };
        if let Some(pool) = self.pools.get_mut(&server).filter(|_| !failed) {
            pool.measured = true;
        }
        let effects = self.machine.handle(NOW, input);
        let cleared = oracle::clears(&effects, server);
        let changed = self.perform(&effects, Some(server))?;
        let description = self.machine.description().server_by_id(server);
        if failed && (!cleared || description.is_some_and(|new| new.server_type.is_available())) {
            return Err(
                "F-50: after a failed check the server is not Unknown, or its pool was not cleared"
                    .into(),
            );
        }
        Ok(changed)
    }

    /// Returns the generation of a connection; `None` if there cannot be one.
    fn connection_generation(&self, server: ServerId, late: bool) -> Option<Generation> {
        let generation = self.pools.get(&server)?.generation.as_u64();
        let generation = generation.checked_sub(u64::from(late))?;
        Some(Generation::from_u64(generation))
    }

    fn handshake(
        &mut self,
        server: ServerId,
        on: u8,
        reply: Reply,
        late: bool,
    ) -> Result<bool, String> {
        let Some(generation) = self.connection_generation(server, late) else {
            return Ok(false);
        };
        let input = Input::Handshake {
            server,
            generation,
            hello: reply.hello(on),
            rtt: self
                .pools
                .get(&server)
                .filter(|pool| pool.measured)
                .map(|_| RTT),
        };
        let effects = self.machine.handle(NOW, input);
        if late && !effects.is_empty() {
            return Err(format!(
                "F-80: a handshake of an earlier generation has the effects {effects:?}"
            ));
        }
        self.perform(&effects, Some(server))
    }

    fn error(
        &mut self,
        server: ServerId,
        on: u8,
        error: OperationError,
        late: bool,
    ) -> Result<bool, String> {
        let Some(generation) = self.connection_generation(server, late) else {
            return Ok(false);
        };
        let reply = error.reply(on);
        let cause = match (reply, error) {
            (Some(reply), _) => Cause::Reply(reply.into()),
            (None, OperationError::Auth) => Cause::Auth("authentication failed".into()),
            (None, OperationError::Timeout) => Cause::Timeout("timed out".into()),
            (None, _) => Cause::Network("broken".into()),
        };
        let description = self.machine.description().server_by_id(server);
        let max_wire_version = description.map_or(0, |server| server.wire_versions.max);
        let report =
            AppError::new(generation, error.stage(), cause).with_max_wire_version(max_wire_version);
        let (outcome, effects) = self.machine.handle_error(NOW, server, &report);
        if late && outcome != ErrorOutcome::Stale {
            return Err(format!(
                "an error of an earlier generation resulted in {outcome:?}, expected Stale"
            ));
        }
        let must_clear = matches!(error, OperationError::Broken | OperationError::Auth);
        if !late && must_clear && outcome != ErrorOutcome::Cleared {
            return Err(format!(
                "{error:?} resulted in {outcome:?}, expected Cleared"
            ));
        }
        let cleared = oracle::clears(&effects, server);
        let silent = effects.is_empty();
        let changed = self.perform(&effects, Some(server))?;
        let description = self.machine.description().server_by_id(server);
        let unknown = description.is_some_and(|server| !server.server_type.is_available());
        let matches = match outcome {
            ErrorOutcome::Cleared => cleared && unknown,
            ErrorOutcome::MarkedUnknown => !cleared && unknown,
            _ => silent,
        };
        if !matches {
            return Err(format!("the effects do not match the outcome {outcome:?}"));
        }
        Ok(changed)
    }

    /// Performs effects, and checks them and the resulting state.
    fn perform(&mut self, effects: &Effects, about: Option<ServerId>) -> Result<bool, String> {
        let after = Arc::clone(self.machine.description());
        let before = std::mem::replace(&mut self.published, after);
        let change = Change {
            before: &before,
            after: &self.published,
            about,
        };
        oracle::order(effects, self.reported.servers().is_empty())?;
        oracle::publication(&change, effects)?;
        oracle::events(&change, &mut self.reported, effects)?;
        let removed = oracle::pools(&change, &mut self.pools, effects)?;
        oracle::state(&self.machine, &self.pools)?;
        for server in removed {
            self.check_removed(server)?;
        }
        Ok(!effects.is_empty())
    }

    /// Checks that late inputs for a removed server id are ignored.
    fn check_removed(&mut self, server: ServerId) -> Result<(), String> {
        let late = Err(ServerError::new(ErrorKind::Network, Stage::Hello, "late"));
        let input = Input::Checked {
            server,
            outcome: late,
            rtt: None,
        };
        let effects = self.machine.handle(NOW, input);
        let error = AppError::auth(Generation::FIRST, "late");
        let (outcome, other) = self.machine.handle_error(NOW, server, &error);
        if effects.is_empty() && other.is_empty() && outcome == ErrorOutcome::UnknownServer {
            Ok(())
        } else {
            Err(format!(
                "an input of the removed server {server} has an effect"
            ))
        }
    }
}
