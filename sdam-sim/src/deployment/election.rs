//! Elections, step-downs and takeovers.

use std::time::Duration;

use super::{Cluster, Timer};
use crate::{
    MemberId,
    member::{ProcessState, Replica, Role},
};

impl Cluster {
    /// Returns a random duration shorter than `span`.
    pub(super) fn jitter(&mut self, span: Duration) -> Duration {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.rng.below(span))
    }

    /// Immediately elects the most preferred member of a new set.
    pub(super) fn elect_first(&mut self) {
        if let Some(member) = self.best_candidate(None)
            && self.run_election(member)
        {
            // A new set has no writes to catch up with.
            self.accept_writes(member);
        }
    }

    /// Returns the electable member with the highest priority. If several members have this
    /// priority, returns the first of them. If the primary `from` hands over, the member must be
    /// reachable from `from` and have all writes of `from`.
    pub(crate) fn best_candidate(&self, from: Option<MemberId>) -> Option<MemberId> {
        let newest = |member| self.replica(member).map(|own| own.oplog.last().time);
        self.ids()
            .filter(|member| {
                self.can_run(*member)
                    && from.is_none_or(|from| {
                        *member != from
                            && self.are_connected(from, *member)
                            && newest(*member) >= newest(from)
                    })
            })
            .rev()
            .max_by(|a, b| self.priority(*a).total_cmp(&self.priority(*b)))
    }

    fn priority(&self, member: MemberId) -> f64 {
        self.member(member).config().map_or(0.0, |own| own.priority)
    }

    /// Returns whether `member` may run for election now.
    pub(crate) fn can_run(&self, member: MemberId) -> bool {
        let own = self.member(member);
        own.state == ProcessState::Up
            && !own.frozen
            && own.is_electable()
            && own.replica().is_some_and(|replica| {
                replica.role == Role::Secondary && replica.frozen_until <= self.now
            })
    }

    /// Starts the election timeout of `member`.
    pub(super) fn await_primary(&mut self, member: MemberId) {
        let own = self.member(member);
        if !own.is_electable() || own.role() == Some(Role::Primary) {
            self.timers.cancel(Timer::Election(member));
            return;
        }
        // mongod spreads elections over 15 % of the election timeout, which makes ties rare.
        let jitter = self.jitter(self.timing.election_timeout * 3 / 20);
        self.timers.set(Timer::Election(member), self.now + self.timing.election_timeout + jitter);
    }

    /// Schedules an election if `member` has a higher priority than the primary (mongod: "priority
    /// takeover"). The delay is shorter for members with a higher rank.
    pub(super) fn consider_takeover(&mut self, member: MemberId, primary: MemberId) {
        let own = self.priority(member);
        if own <= self.priority(primary) || self.member(member).role() != Some(Role::Secondary) {
            self.timers.cancel(Timer::Takeover(member));
            return;
        }
        let rank = self.ids().filter(|peer| self.priority(*peer) > own).count();
        let wait = self.timing.election_timeout * (rank as u32 + 1);
        self.timers.set_if_unset(Timer::Takeover(member), self.now + wait);
    }

    /// Makes `member` run for election because it sees no primary or outranks the primary.
    pub(super) fn campaign(&mut self, member: MemberId) {
        let Some(own) = self.replica(member) else {
            return;
        };
        if own.role == Role::Primary {
            return;
        }
        if own.frozen_until > self.now {
            self.timers.set(Timer::Election(member), own.frozen_until);
            return;
        }
        if !self.can_run(member) || !self.run_election(member) {
            self.await_primary(member);
        }
    }

    /// Collects votes for `member`. Returns whether it won.
    pub(crate) fn run_election(&mut self, member: MemberId) -> bool {
        let Some(own) = self.replica(member) else {
            return false;
        };
        let term = own.term + 1;
        let voters = self.majority(own, |voter| {
            let grants = self.replica(voter).is_some_and(|peer| grants_vote(peer, own, term));
            self.are_connected(member, voter) && grants
        });
        let Some(voters) = voters else {
            return false;
        };
        for voter in voters {
            if let Some(peer) = self.replica_mut(voter) {
                peer.voted = term;
            }
        }
        self.become_primary(member, term);
        true
    }

    pub(super) fn become_primary(&mut self, member: MemberId, term: i64) {
        let Some(own) = self.replica_mut(member) else {
            return;
        };
        own.term = term;
        own.voted = term;
        own.role = Role::Primary;
        own.primary = Some(member);
        own.ignores_majority = false;
        own.draining = true;
        self.timers.cancel(Timer::Election(member));
        self.timers.cancel(Timer::Takeover(member));
        self.timers.set(Timer::CatchUp(member), self.now + self.timing.catch_up);
        // A new primary writes a no-op. This also starts its periodic no-ops.
        self.record_write(member);
        self.gossip(member);
    }

    /// Ends the catch-up phase of `member`, which accepts writes from then on.
    pub(super) fn accept_writes(&mut self, member: MemberId) {
        self.timers.cancel(Timer::CatchUp(member));
        if let Some(own) = self.replica_mut(member) {
            own.draining = false;
        }
    }

    /// Makes a primary step down if it has had no contact with a majority for the election timeout.
    pub(super) fn check_majority(&mut self, member: MemberId) {
        let Some(own) = self.replica(member) else {
            return;
        };
        if own.role != Role::Primary || own.ignores_majority {
            return;
        }
        let timeout = self.timing.election_timeout;
        let peers = self.majority(own, |voter| {
            let last = own.peers.get(&voter);
            voter == member || last.is_some_and(|peers| self.now.since(peers.at) < timeout)
        });
        if peers.is_none() {
            self.relinquish(member);
        }
    }

    /// Returns the voters in the configuration of `own` that `meets` accepts, if they are a
    /// majority.
    fn majority(&self, own: &Replica, meets: impl Fn(MemberId) -> bool) -> Option<Vec<MemberId>> {
        let config = own.config.as_deref()?;
        let voters = config.members.iter().filter(|voter| voter.votes);
        let voters = voters.filter_map(|voter| self.member_at(&voter.address));
        let found: Vec<_> = voters.filter(|voter| meets(*voter)).collect();
        (found.len() * 2 > config.voters()).then_some(found)
    }

    /// Ends the primary role of `member`.
    pub(super) fn relinquish(&mut self, member: MemberId) {
        let Some(own) = self.replica_mut(member) else {
            return;
        };
        own.primary = None;
        own.ignores_majority = false;
        own.draining = false;
        self.member_mut(member).assign_role();
        self.timers.cancel(Timer::CatchUp(member));
        self.timers.cancel(Timer::NoOp(member));
        self.await_primary(member);
    }

    /// Makes `member` step down for at least `period`. If another member is electable, `member`
    /// hands over to the best of them.
    pub(crate) fn step_down(&mut self, member: MemberId, period: Duration) {
        let successor = self.best_candidate(Some(member));
        self.relinquish(member);
        let until = self.now + period;
        if let Some(own) = self.replica_mut(member) {
            own.frozen_until = until;
        }
        self.timers.set(Timer::Election(member), until);
        self.gossip(member);
        // The successor's timer must be set last. Otherwise, members that learn by gossip that
        // there is no primary would set it to a later time.
        if let Some(successor) = successor {
            self.timers.set(Timer::Election(successor), self.now + self.timing.hand_over);
        }
    }
}

/// Returns whether `voter` would vote for `candidate` in `term`.
fn grants_vote(voter: &Replica, candidate: &Replica, term: i64) -> bool {
    let outdated = match (&voter.config, &candidate.config) {
        (Some(theirs), Some(own)) => theirs.is_newer_than(own),
        _ => false,
    };
    let ahead =
        voter.role != Role::Arbiter && voter.oplog.last().time > candidate.oplog.last().time;
    voter.term < term && voter.voted < term && !outdated && !ahead
}
