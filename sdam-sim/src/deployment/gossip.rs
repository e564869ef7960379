//! Heartbeats and replication between members.

use std::sync::Arc;

use super::{Cluster, Timer};
use crate::{
    MemberId,
    config::{MemberConfig, SetConfig},
    member::{PeerState, Role},
};

impl Cluster {
    /// Makes a `member` that has just started join its set, or wait for a configuration.
    pub(super) fn join(&mut self, member: MemberId) {
        if self.replica_mut(member).is_none() {
            return;
        }
        self.member_mut(member).assign_role();
        // A random phase keeps members from sending heartbeats in lockstep.
        let phase = self.jitter(self.timing.heartbeat_interval);
        self.timers.set(Timer::Heartbeat(member), self.now + phase);
        self.await_primary(member);
        self.gossip(member);
    }

    pub(super) fn heartbeat(&mut self, member: MemberId) {
        self.timers.set(Timer::Heartbeat(member), self.now + self.timing.heartbeat_interval);
        self.gossip(member);
        self.check_majority(member);
    }

    /// Exchanges heartbeats between `member` and every reachable member.
    pub(super) fn gossip(&mut self, member: MemberId) {
        for peer in self.ids() {
            if peer != member && self.share_a_set(member, peer) {
                self.exchange(member, peer);
            }
        }
    }

    /// Returns whether at least one of the two members knows the other.
    fn share_a_set(&self, a: MemberId, b: MemberId) -> bool {
        let config = |member| self.replica(member).and_then(|replica| replica.config.as_ref());
        let knows =
            |a, b| config(a).is_some_and(|config| config.member(&self.member(b).address).is_some());
        // A member's role already tells whether its configuration contains it, so the entries need
        // not be searched.
        let is_member = |role| !matches!(role, Role::Startup | Role::Removed);
        if let (Some(one), Some(other)) = (config(a), config(b))
            && Arc::ptr_eq(one, other)
            && self.member(b).role().is_some_and(is_member)
        {
            return true;
        }
        knows(a, b) || knows(b, a)
    }

    /// Returns whether two members can exchange messages.
    pub(super) fn are_connected(&self, a: MemberId, b: MemberId) -> bool {
        a == b
            || self.member(a).answers_members()
                && self.member(b).answers_members()
                && !self.partitions.contains(&(a.min(b), a.max(b)))
    }

    fn exchange(&mut self, member: MemberId, peer: MemberId) {
        if !self.member(member).answers_members() {
            return;
        }
        if self.are_connected(member, peer) {
            self.learn(member, peer);
            self.learn(peer, member);
            // The second call may have given `peer` new information, which `member` must learn as
            // well.
            self.learn(member, peer);
        } else {
            self.missed(member, peer);
        }
    }

    /// Records that `member` got no answer from `peer`.
    fn missed(&mut self, member: MemberId, peer: MemberId) {
        let (now, timeout) = (self.now, self.timing.election_timeout);
        let refused = !self.member(peer).is_running();
        let Some(replica) = self.replica_mut(member) else {
            return;
        };
        let peers = replica.peers.entry(peer).or_insert(PeerState { at: now, up: false });
        // A peer that refuses connections is considered down immediately. A silent peer is
        // considered down only after a timeout.
        if refused || now.since(peers.at) >= timeout {
            peers.up = false;
            if replica.primary == Some(peer) {
                replica.primary = None;
                self.timers.cancel(Timer::Takeover(member));
            }
        }
    }

    /// Updates `member` with what it learns from `peer`.
    fn learn(&mut self, member: MemberId, peer: MemberId) {
        let Some(other) = self.replica(peer) else {
            return;
        };
        let (now, term, role) = (self.now, other.term, other.role);
        let newer = other.config.clone().filter(|theirs| {
            let own = self.replica(member).and_then(|own| own.config.as_ref());
            own.is_none_or(|own| theirs.is_newer_than(own))
        });
        let Some(own) = self.replica_mut(member) else {
            return;
        };
        own.peers.insert(peer, PeerState { at: now, up: true });
        if term > own.term {
            own.term = term;
            if own.role == Role::Primary {
                self.relinquish(member);
            }
        }
        if let Some(config) = newer {
            self.install(member, config);
        }
        self.learn_primary(member, peer, role);
    }

    fn learn_primary(&mut self, member: MemberId, peer: MemberId, role: Role) {
        let Some(other) = self.replica(peer) else {
            return;
        };
        let (peer_term, peer_last) = (other.term, other.oplog.last().time);
        let Some(own) = self.replica_mut(member) else {
            return;
        };
        if role != Role::Primary {
            let was_primary = own.primary == Some(peer);
            own.primary = own.primary.filter(|_| !was_primary);
            // Without a primary, members replicate from each other. Otherwise, the only member that
            // can be elected might lack writes that the voters have.
            let is_behind = own.primary.is_none() && own.oplog.last().time < peer_last;
            if was_primary {
                self.timers.cancel(Timer::Takeover(member));
            }
            if is_behind && matches!(role, Role::Secondary | Role::Recovering) {
                self.follow(member, peer);
            }
            return;
        }
        if peer_term < own.term || own.config.is_none() || own.role == Role::Removed {
            return;
        }
        own.primary = Some(peer);
        self.follow(member, peer);
        self.await_primary(member);
        self.consider_takeover(member, peer);
    }

    /// Replicates the writes of `primary` to `member`.
    fn follow(&mut self, member: MemberId, primary: MemberId) {
        let now = self.now;
        let delay = self.member(member).config().map(|config| config.delay);
        let Some(source) = self.replica(primary).map(|primary| primary.oplog.clone()) else {
            return;
        };
        let Some(own) = self.member_mut(member).replica_mut() else {
            return;
        };
        if matches!(own.role, Role::Secondary | Role::Recovering) {
            let behind = own.lag + delay.unwrap_or_default();
            own.oplog.follow(&source, now - behind);
        }
    }

    pub(super) fn install(&mut self, member: MemberId, config: Arc<SetConfig>) {
        let entry = config.member(&self.member(member).address);
        let electable = entry.is_some_and(MemberConfig::is_electable);
        let Some(own) = self.replica_mut(member) else {
            return;
        };
        own.config = Some(config);
        if own.role == Role::Primary {
            if !electable {
                self.relinquish(member);
            }
            return;
        }
        let own = self.member_mut(member);
        own.assign_role();
        if let Some(own) = own.replica_mut().filter(|own| own.role == Role::Removed) {
            own.primary = None;
        }
        self.timers.cancel(Timer::Takeover(member));
        self.await_primary(member);
    }

    /// Records a write on `member`, if it is primary, and replicates it to the other members. The
    /// write may also be the periodic no-op (M-43).
    pub(crate) fn record_write(&mut self, member: MemberId) {
        let (now, date) = (self.now, self.date());
        let lags = self.members.iter().filter_map(|member| {
            let delay = member.config().map(|own| own.delay);
            Some(delay.unwrap_or_default() + member.replica()?.lag)
        });
        let retain = lags.max().unwrap_or_default();
        // A new last write date alone is not a significant topology change.
        let Some(own) = self.member_mut(member).replica_mut() else {
            return;
        };
        if own.role != Role::Primary {
            return;
        }
        own.oplog.write(own.term, now, date, retain);
        self.timers.set(Timer::NoOp(member), self.now + self.timing.no_op_interval);
        for peer in self.ids() {
            if peer != member
                && self.are_connected(member, peer)
                && self.replica(peer).is_some_and(|peer| peer.primary == Some(member))
            {
                self.follow(peer, member);
            }
        }
    }
}
