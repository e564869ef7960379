//! The effects of actions on a deployment.

use std::{sync::Arc, time::Duration};

use sdam_core::{address::ServerAddress, time::Instant};

use super::{Cluster, Outputs, Role, Timer};
use crate::{
    MemberId,
    action::{Action, ActionError, HorizonPolicy, Target},
    config::{MemberConfig, SetConfig},
    member::{Kind, ProcessState, Replica},
    version::ServerVersion,
};

impl Cluster {
    /// Performs `action` at the time `now`.
    pub fn apply(&mut self, now: Instant, action: &Action) -> Result<Outputs, ActionError> {
        self.now = now;
        self.act(action)?;
        Ok(self.finish())
    }

    fn act(&mut self, action: &Action) -> Result<(), ActionError> {
        match action {
            Action::StepDown { period } => {
                let primary = self.target(Target::Primary)?;
                self.step_down(primary, *period);
            }
            Action::StepUp(target) => self.act_step_up(*target)?,
            Action::ReplSetFreeze(target, period) => {
                self.repl_set_freeze(self.target_replica(*target)?, *period)?;
            }
            Action::Kill(target) => self.end_process(self.running(*target)?),
            Action::Shutdown(target) => self.shut_down(self.running(*target)?),
            Action::Restart(target) => self.restart(self.target(*target)?),
            Action::Freeze(target) => self.member_mut(self.running(*target)?).frozen = true,
            Action::Thaw(target) => self.thaw(self.target(*target)?),
            Action::Partition(left, right) => self.partition(left, right)?,
            Action::Isolate(target) => {
                let member = self.target_replica(*target)?;
                let others = self.ids().filter(|other| *other != member);
                self.partitions.extend(others.map(|other| pair(member, other)));
            }
            Action::CutOff(target) => self.member_mut(self.target(*target)?).cut_off = true,
            Action::Heal => self.heal(),
            Action::SplitBrain => self.split_brain()?,
            Action::Reconfig(config) => self.reconfigure(config.clone(), false)?,
            Action::Edit(target, edits) => self.change_config(*target, |config, address| {
                let entry = config.member_mut(address)?;
                for edit in edits {
                    edit.apply(entry);
                }
                Some(())
            })?,
            Action::Add(member) => self.change_config((*member).into(), |config, address| {
                if config.member(address).is_none() {
                    config.members.push(MemberConfig::new(address.clone()));
                }
                Some(())
            })?,
            Action::Remove(target) => self.change_config(*target, |config, address| {
                config.members.retain(|entry| entry.address != *address);
                Some(())
            })?,
            Action::Maintenance(target, on) => {
                self.set_maintenance(self.target_replica(*target)?, *on)?;
            }
            Action::Horizon(policy) => self.change_horizon(*policy),
            Action::FailPoint(target, fail) => {
                let member = self.running(*target)?;
                self.member_mut(member).process.fail_command.clone_from(fail);
            }
            Action::Exhaust(target, on) => self.member_mut(self.target(*target)?).exhaust = *on,
            Action::Flood(target, every) => {
                let member = self.running(*target)?;
                self.member_mut(member).process.flood = *every;
                self.schedule_flood(member);
            }
            Action::Lag(target, lag) => {
                if let Some(own) = self.replica_mut(self.target_replica(*target)?) {
                    own.lag = *lag;
                }
            }
            Action::Upgrade(target, version) => {
                let member = self.target(*target)?;
                self.member_mut(member).version = *version;
                self.restart(member);
            }
            Action::Impostor(target, kind) => {
                let member = self.target(*target)?;
                self.member_mut(member).impostor = *kind;
                self.close_connections(member);
            }
        }
        Ok(())
    }

    /// Returns the member that `target` currently refers to.
    pub(crate) fn target(&self, target: Target) -> Result<MemberId, ActionError> {
        let found = match target {
            Target::Member(member) => self.ids().find(|id| *id == member),
            Target::Primary => self.current_primary(),
            Target::Secondary => self.ids().find(|member| {
                let own = self.member(*member);
                own.is_running() && own.role() == Some(Role::Secondary)
            }),
        };
        found.ok_or(ActionError::NoTarget(target))
    }

    fn running(&self, target: Target) -> Result<MemberId, ActionError> {
        let member = self.target(target)?;
        if self.member(member).is_running() {
            Ok(member)
        } else {
            Err(ActionError::NotRunning(member))
        }
    }

    fn target_replica(&self, target: Target) -> Result<MemberId, ActionError> {
        let member = self.target(target)?;
        self.replica(member).ok_or(ActionError::NoReplicaSet)?;
        Ok(member)
    }

    /// Returns the running primary. If there are two primaries, returns the one that was elected
    /// last.
    pub(crate) fn current_primary(&self) -> Option<MemberId> {
        let term = |member: &MemberId| self.replica(*member).map(|replica| replica.term);
        self.ids()
            .filter(|member| {
                let own = self.member(*member);
                own.is_running() && own.role() == Some(Role::Primary)
            })
            .max_by_key(term)
    }

    fn act_step_up(&mut self, target: Target) -> Result<(), ActionError> {
        let (member, now) = (self.running(target)?, self.now);
        let Some(own) = self.replica_mut(member) else {
            return Err(ActionError::NoReplicaSet);
        };
        own.frozen_until = now;
        if self.can_run(member) && self.run_election(member) {
            Ok(())
        } else {
            Err(ActionError::NotElected(member))
        }
    }

    pub(crate) fn repl_set_freeze(
        &mut self,
        member: MemberId,
        period: Duration,
    ) -> Result<(), ActionError> {
        if self.member(member).role() == Some(Role::Primary) {
            return Err(ActionError::WrongRole(member));
        }
        let until = self.now + period;
        if let Some(own) = self.replica_mut(member) {
            own.frozen_until = until;
        }
        if period.is_zero() {
            self.await_primary(member);
        }
        Ok(())
    }

    /// Shuts the process down. A primary steps down first. The shutdown is announced to clients if
    /// the server supports that.
    pub(crate) fn shut_down(&mut self, member: MemberId) {
        if self.member(member).role() == Some(Role::Primary) {
            self.step_down(member, Duration::from_secs(60));
        }
        let own = self.member(member);
        // Since 4.4.2, a shutdown is announced before the connections are closed.
        let quiesces = own.version >= ServerVersion::V4_4.patch(2)
            && !matches!(own.kind, Kind::Standalone)
            && own.state == ProcessState::Up;
        if !quiesces {
            self.finish_shutdown(member);
            return;
        }
        let until = self.now + self.timing.quiesce;
        self.member_mut(member).state = ProcessState::Quiescing(until);
        self.dirty = true;
        self.timers.set(Timer::Quiesce(member), until);
    }

    fn restart(&mut self, member: MemberId) {
        if self.member(member).is_running() {
            self.end_process(member);
        }
        self.start_process(member);
    }

    fn thaw(&mut self, member: MemberId) {
        self.dirty = true;
        let own = self.member_mut(member);
        own.frozen = false;
        for timer in std::mem::take(&mut own.stalled) {
            self.timers.set(timer, self.now);
        }
        self.resume_clients(member);
    }

    fn partition(&mut self, left: &[Target], right: &[Target]) -> Result<(), ActionError> {
        let mut pairs = Vec::new();
        for a in left {
            for b in right {
                pairs.push(pair(self.target_replica(*a)?, self.target_replica(*b)?));
            }
        }
        self.partitions.extend(pairs);
        Ok(())
    }

    fn heal(&mut self) {
        self.partitions.clear();
        for member in self.ids() {
            self.member_mut(member).cut_off = false;
            if let Some(own) = self.replica_mut(member) {
                own.ignores_majority = false;
            }
            self.resume_clients(member);
        }
        for member in self.ids() {
            self.gossip(member);
        }
    }

    fn split_brain(&mut self) -> Result<(), ActionError> {
        let old = self.target(Target::Primary)?;
        let new = self.best_candidate(Some(old)).ok_or(ActionError::NotElected(old))?;
        let cut: Vec<_> = self.ids().filter(|other| *other != old).collect();
        let before = self.partitions.clone();
        self.partitions.extend(cut.into_iter().map(|other| pair(old, other)));
        if !self.run_election(new) {
            self.partitions = before;
            return Err(ActionError::NotElected(new));
        }
        if let Some(own) = self.replica_mut(old) {
            own.ignores_majority = true;
        }
        Ok(())
    }

    /// Applies `change` to the configuration. `change` fails if the member has no entry.
    fn change_config(
        &mut self,
        target: Target,
        change: impl FnOnce(&mut SetConfig, &ServerAddress) -> Option<()>,
    ) -> Result<(), ActionError> {
        let member = self.target_replica(target)?;
        let mut config = self.config().ok_or(ActionError::NoReplicaSet)?;
        change(&mut config, &self.member(member).address).ok_or(ActionError::NoTarget(target))?;
        self.reconfigure(config, false)
    }

    /// Installs `config` on the primary and distributes it. If there is no primary and `force` is
    /// true, any running member accepts the configuration. With `force`, the version increases by a
    /// large number, as in mongod.
    pub(crate) fn reconfigure(
        &mut self,
        mut config: SetConfig,
        force: bool,
    ) -> Result<(), ActionError> {
        let by = match self.current_primary() {
            Some(primary) => primary,
            None if force => self
                .ids()
                .find(|member| {
                    self.member(*member).answers_members() && self.replica(*member).is_some()
                })
                .ok_or(ActionError::NoTarget(Target::Primary))?,
            None => return Err(ActionError::NoTarget(Target::Primary)),
        };
        let current = self.replica(by).and_then(|own| own.config.as_ref());
        let current = current.ok_or(ActionError::NoReplicaSet)?;
        let known = config.members.iter().all(|entry| {
            self.member_at(&entry.address).is_some_and(|id| self.replica(id).is_some())
        });
        let is_possible = config.members.iter().all(MemberConfig::is_possible);
        if !known || !is_possible || !config.members.iter().any(MemberConfig::is_electable) {
            return Err(ActionError::InvalidConfig);
        }
        let jump = if force { 10_000 } else { 1 };
        config.version = current.version + jump;
        config.name = current.name.clone();
        config.term = self.replica(by).map_or(0, |own| own.term);
        let removed = current.clone();
        self.install(by, Arc::new(config));
        self.gossip(by);
        // Removed members learn of the change because they still exchange heartbeats with members
        // that know them.
        for entry in &removed.members {
            if let Some(member) = self.member_at(&entry.address) {
                self.gossip(member);
            }
        }
        Ok(())
    }

    pub(crate) fn set_maintenance(
        &mut self,
        member: MemberId,
        on: bool,
    ) -> Result<(), ActionError> {
        let allowed =
            |replica: &&mut Replica| matches!(replica.role, Role::Secondary | Role::Recovering);
        let Some(own) = self.replica_mut(member).filter(allowed) else {
            return Err(ActionError::WrongRole(member));
        };
        own.maintenance = on;
        self.member_mut(member).assign_role();
        self.await_primary(member);
        Ok(())
    }

    fn change_horizon(&mut self, policy: HorizonPolicy) {
        self.horizon_policy = policy;
        self.horizon += 1;
        self.dirty = true;
        for member in self.ids() {
            match policy {
                HorizonPolicy::Close => self.close_connections(member),
                HorizonPolicy::Error => self.fail_waiters_of_horizon_change(member),
            }
        }
    }
}

fn pair(a: MemberId, b: MemberId) -> (MemberId, MemberId) {
    (a.min(b), a.max(b))
}
