use std::{fmt, ops::BitOr};

use super::EventName;

/// A set of event names.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Interest(u64);

impl Interest {
    /// No event.
    pub const NONE: Self = Self(0);

    /// The events about topology and servers: openings, description changes, closings, ignored
    /// members, `TopologyEmptied`, `ServerUnusable`, suspicions and `EventsDropped`.
    pub const DESCRIPTIONS: Self = Self::of(&[
        EventName::TopologyOpening,
        EventName::TopologyDescriptionChanged,
        EventName::TopologyClosed,
        EventName::ServerOpening,
        EventName::ServerDescriptionChanged,
        EventName::ServerClosed,
        EventName::MembersIgnored,
        EventName::TopologyEmptied,
        EventName::ServerUnusable,
        EventName::ServerSuspected,
        EventName::ServerSuspicionEnded,
        EventName::EventsDropped,
    ]);

    /// The three events about checks (heartbeats).
    pub const HEARTBEATS: Self = Self::of(&[
        EventName::ServerHeartbeatStarted,
        EventName::ServerHeartbeatSucceeded,
        EventName::ServerHeartbeatFailed,
    ]);

    /// Warnings about options, which are published once the topology has opened, and warnings about
    /// look-ups of its SRV record.
    pub const WARNINGS: Self = Self::of(&[
        EventName::ConfigWarning,
        EventName::SrvHostsIgnored,
        EventName::SrvLookupFailed,
    ]);

    /// The events of the SDAM Logging and Monitoring specification, and those specific to sdam:
    /// ignored members, emptied topologies, unusable and suspected servers, dropped events,
    /// warnings about options and SRV records.
    pub const SDAM: Self = Self::DESCRIPTIONS.union(Self::HEARTBEATS).union(Self::WARNINGS);

    /// The topology's commands to connection pools: the part of [`POOLS`](Self::POOLS) that does
    /// not slow down operations.
    pub const POOL_STATES: Self = Self::of(&[EventName::PoolReady, EventName::PoolCleared]);

    /// Check-outs and check-ins of pooled connections: a part of [`POOLS`](Self::POOLS). Each
    /// operation publishes three of these events.
    pub const CHECK_OUTS: Self = Self::of(&[
        EventName::ConnectionCheckOutStarted,
        EventName::ConnectionCheckOutFailed,
        EventName::ConnectionCheckedOut,
        EventName::ConnectionCheckedIn,
    ]);

    /// The events of connection pools and their connections (CMAP: "Events"). A pool that supports
    /// events publishes all of them except [`POOL_STATES`](Self::POOL_STATES).
    pub const POOLS: Self = Self::of(&[
        EventName::PoolCreated,
        EventName::PoolClosed,
        EventName::ConnectionCreated,
        EventName::ConnectionReady,
        EventName::ConnectionClosed,
    ])
    .union(Self::POOL_STATES)
    .union(Self::CHECK_OUTS);

    /// The events of commands (Command Logging and Monitoring), for clients that publish them. Each
    /// command publishes two events, with copies of the command and the reply.
    pub const COMMANDS: Self = Self::of(&[
        EventName::CommandStarted,
        EventName::CommandSucceeded,
        EventName::CommandFailed,
    ]);

    /// The steps of each server selection.
    pub const SELECTION: Self = Self::of(&[
        EventName::ServerSelectionStarted,
        EventName::ServerSelectionWaiting,
        EventName::ServerSelectionSucceeded,
        EventName::ServerSelectionFailed,
    ]);

    /// The events that every operation publishes, which make each operation slower: selections,
    /// check-outs and commands.
    pub const OPERATIONS: Self = Self::SELECTION.union(Self::CHECK_OUTS).union(Self::COMMANDS);

    /// The inputs of the topology, for recordings, and its round-trip times. Each answer from a
    /// server causes one or both of these events.
    pub const INPUTS: Self = Self::of(&[EventName::Input, EventName::RttMeasured]);

    /// All events, including those added by later versions, but not the inputs of the topology:
    /// only a sink that names [`INPUTS`](Self::INPUTS) gets them.
    pub const ALL: Self = Self(u64::MAX).without(Self::of(&[EventName::Input]));

    /// Returns the set that contains exactly the given names.
    pub const fn of(names: &[EventName]) -> Self {
        let mut set = 0;
        let mut rest = names;
        while let [name, tail @ ..] = rest {
            set |= 1 << name.index();
            rest = tail;
        }
        Self(set)
    }

    /// Returns the names that are in at least one of the sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the names that are in both sets.
    #[must_use]
    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the names that are in this set but not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether `name` is in the set.
    pub const fn contains(self, name: EventName) -> bool {
        self.0 & (1 << name.index()) != 0
    }

    /// Returns whether every name of `other` is in the set.
    pub(crate) const fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether no name is in the set.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the names in the set, in the order of [`EventName::ALL`].
    pub fn names(self) -> impl Iterator<Item = EventName> {
        EventName::ALL.iter().copied().filter(move |name| self.contains(*name))
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl<I: Into<Self>> BitOr<I> for Interest {
    type Output = Self;

    fn bitor(self, other: I) -> Self {
        self.union(other.into())
    }
}

impl From<EventName> for Interest {
    fn from(name: EventName) -> Self {
        Self::of(&[name])
    }
}

impl FromIterator<EventName> for Interest {
    fn from_iter<I: IntoIterator<Item = EventName>>(names: I) -> Self {
        names.into_iter().fold(Self::NONE, |set, name| set.union(name.into()))
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names().map(EventName::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_sets_partition_all_names() {
        let sets = [
            Interest::DESCRIPTIONS,
            Interest::HEARTBEATS,
            Interest::WARNINGS,
            Interest::POOLS,
            Interest::COMMANDS,
            Interest::SELECTION,
            Interest::INPUTS,
        ];
        for &name in EventName::ALL {
            let homes = sets.iter().filter(|set| set.contains(name)).count();
            assert_eq!(homes, 1, "{}", name.as_str());
            assert_eq!(Interest::ALL.contains(name), name != EventName::Input);
            assert!(!Interest::NONE.contains(name));
        }
    }

    #[test]
    fn set_operations_agree_with_membership() {
        let opening = Interest::from(EventName::TopologyOpening);
        let checks = Interest::HEARTBEATS;
        assert_eq!(opening.union(checks).without(checks), opening, "{opening:?}");
        assert_eq!(checks | EventName::TopologyOpening, opening.union(checks));
        assert!(opening.intersection(checks).is_empty());
        assert!(Interest::SDAM.contains_all(checks));
        assert!(!checks.contains_all(Interest::SDAM));
        assert_eq!(checks.names().collect::<Interest>(), checks);
        assert_eq!(format!("{opening:?}"), r#"{"TopologyOpening"}"#);
    }
}
