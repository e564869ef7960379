//! Replica set configurations.

use std::{sync::Arc, time::Duration};

use sdam_core::address::ServerAddress;

/// The configuration of a replica set, as its members keep it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SetConfig {
    /// The set's name.
    pub name: Arc<str>,
    /// Counts reconfigurations (`setVersion`); raised by the deployment, not by hand.
    pub version: i64,
    /// The term of the primary that made this version.
    pub term: i64,
    /// The members.
    pub members: Vec<MemberConfig>,
}

/// What a replica set configuration says about one member.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemberConfig {
    /// Where clients and the other members find it.
    pub address: ServerAddress,
    /// Members of higher priority become primary; with 0 a member never does.
    pub priority: f64,
    /// Whether it takes part in elections.
    pub votes: bool,
    /// Whether clients are not told of it.
    pub hidden: bool,
    /// Whether it only votes.
    pub arbiter: bool,
    /// How far it stays behind the primary on purpose.
    pub delay: Duration,
    /// Its tags, in order.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
}

impl SetConfig {
    /// The first configuration of a set whose members all look alike.
    pub fn new(name: &str, addresses: impl IntoIterator<Item = ServerAddress>) -> Self {
        Self {
            name: name.into(),
            version: 1,
            term: 1,
            members: addresses.into_iter().map(MemberConfig::new).collect(),
        }
    }

    /// The entry of the member at `address`.
    pub fn member(&self, address: &ServerAddress) -> Option<&MemberConfig> {
        self.members
            .iter()
            .find(|member| member.address == *address)
    }

    /// Like [`member`](Self::member), to change it.
    pub fn member_mut(&mut self, address: &ServerAddress) -> Option<&mut MemberConfig> {
        self.members
            .iter_mut()
            .find(|member| member.address == *address)
    }

    /// How many members vote.
    pub fn voters(&self) -> usize {
        self.members.iter().filter(|member| member.votes).count()
    }

    /// Whether members prefer this configuration to `other`.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        (self.term, self.version) > (other.term, other.version)
    }
}

impl MemberConfig {
    /// A voting member that holds data, has priority 1 and is visible.
    pub fn new(address: ServerAddress) -> Self {
        Self {
            address,
            priority: 1.0,
            votes: true,
            hidden: false,
            arbiter: false,
            delay: Duration::ZERO,
            tags: Vec::new(),
        }
    }

    /// The same with another priority.
    #[must_use]
    pub fn priority(mut self, priority: f64) -> Self {
        self.priority = priority;
        self
    }

    /// The same without a vote; what cannot vote cannot be elected.
    #[must_use]
    pub fn non_voting(mut self) -> Self {
        self.votes = false;
        self.priority(0.0)
    }

    /// The same, hidden from clients and never elected.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self.priority(0.0)
    }

    /// The same as an arbiter: it votes and holds no data.
    #[must_use]
    pub fn arbiter(mut self) -> Self {
        self.arbiter = true;
        self.priority(0.0)
    }

    /// The same, `delay` behind the primary and never elected.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self.priority(0.0)
    }

    /// The same with one more tag.
    #[must_use]
    pub fn tag(mut self, name: &str, value: &str) -> Self {
        self.tags.push((name.into(), value.into()));
        self
    }

    /// Whether it may be elected (mongod: "electable").
    pub fn is_electable(&self) -> bool {
        self.priority > 0.0 && !self.arbiter
    }
}
