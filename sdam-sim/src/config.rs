//! Replica set configurations.

use std::{sync::Arc, time::Duration};

use bson::{Bson, Document};
use sdam_core::address::ServerAddress;

/// The configuration of a replica set, as its members store it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SetConfig {
    /// The set's name.
    pub name: Arc<str>,
    /// The version of the configuration (`setVersion`). The deployment increments it with every
    /// reconfiguration.
    pub version: i64,
    /// The term of the primary that created this version.
    pub term: i64,
    /// The members.
    pub members: Vec<MemberConfig>,
}

/// The configuration of one member of a replica set.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemberConfig {
    /// The address at which clients and other members reach the member.
    pub address: ServerAddress,
    /// The election priority. Members with a higher priority are preferred as primary, and a member
    /// with priority 0 never becomes primary.
    pub priority: f64,
    /// True if the member votes in elections.
    pub votes: bool,
    /// True if the member is hidden from clients.
    pub hidden: bool,
    /// True if the member votes but holds no data.
    pub arbiter: bool,
    /// The configured replication delay.
    pub delay: Duration,
    /// The tags, as names and values.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
}

impl From<u16> for SetConfig {
    /// Creates the first configuration of the set `rs0` with this many members: `a:27017`,
    /// `b:27017` and so on.
    fn from(members: u16) -> Self {
        Self::new("rs0", addresses(members))
    }
}

/// Returns the addresses `a:27017`, `b:27017` and so on.
pub(crate) fn addresses(number: u16) -> impl Iterator<Item = ServerAddress> + Clone {
    (0..number).map(|index| {
        let name = match u8::try_from(index) {
            Ok(index @ 0..26) => char::from(b'a' + index).to_string(),
            _ => format!("a{index}"),
        };
        ServerAddress::new(&name, 27017)
    })
}

impl SetConfig {
    /// Creates the first configuration of a set of identical members.
    pub fn new(name: &str, addresses: impl IntoIterator<Item = ServerAddress>) -> Self {
        Self {
            name: name.into(),
            version: 1,
            term: 1,
            members: addresses.into_iter().map(MemberConfig::new).collect(),
        }
    }

    /// Returns the entry of the member at `address`.
    pub fn member(&self, address: &ServerAddress) -> Option<&MemberConfig> {
        self.members.iter().find(|member| member.address == *address)
    }

    /// Returns the mutable entry of the member at `address`.
    pub fn member_mut(&mut self, address: &ServerAddress) -> Option<&mut MemberConfig> {
        self.members.iter_mut().find(|member| member.address == *address)
    }

    /// Returns the number of voting members.
    pub fn voters(&self) -> usize {
        self.members.iter().filter(|member| member.votes).count()
    }

    /// Returns whether members prefer this configuration to `other` because it is newer.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        (self.term, self.version) > (other.term, other.version)
    }
}

impl MemberConfig {
    /// Creates a visible, voting, data-bearing member with priority 1.
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

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: f64) -> Self {
        self.priority = priority;
        self
    }

    /// Removes the member's vote. A member without a vote cannot be elected.
    #[must_use]
    pub fn non_voting(mut self) -> Self {
        self.votes = false;
        self.priority(0.0)
    }

    /// Hides the member from clients. A hidden member cannot be elected.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self.priority(0.0)
    }

    /// Makes the member an arbiter, which votes but holds no data.
    #[must_use]
    pub fn arbiter(mut self) -> Self {
        self.arbiter = true;
        self.priority(0.0)
    }

    /// Keeps the member `delay` behind the primary. A delayed member cannot be elected.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self.priority(0.0)
    }

    /// Adds a tag.
    #[must_use]
    pub fn tag(mut self, name: &str, value: &str) -> Self {
        self.tags.push((name.into(), value.into()));
        self
    }

    pub(crate) fn tag_document(&self) -> Document {
        let tags = self.tags.iter();
        tags.map(|(name, value)| (name.to_string(), Bson::String(value.to_string()))).collect()
    }

    /// Returns whether the member may be elected (mongod: "electable").
    pub fn is_electable(&self) -> bool {
        self.priority > 0.0 && !self.arbiter
    }

    /// Returns whether a set accepts the entry. All releases require priority 0 for members that
    /// are hidden, are delayed or do not vote.
    pub(crate) fn is_possible(&self) -> bool {
        self.priority == 0.0 || (self.votes && !self.hidden && self.delay.is_zero())
    }
}
