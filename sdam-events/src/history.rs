//! The last transitions of a topology and their causes, for diagnosing an incident.
//!
//! ```
//! use std::sync::Arc;
//! use sdam_events::history::History;
//!
//! let history = Arc::new(History::new(100));
//! // Give a clone of it to the topology. After an incident:
//! eprintln!("{history}");
//! ```

use std::{collections::VecDeque, fmt, sync::Mutex};

use sdam_core::{
    address::ServerAddress,
    error::Error,
    event::{Event, EventKind},
    ids::{Generation, ObjectId},
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{DepartureReason, TopologyType},
};

use crate::sink::{EventSink, Interest, lock};

#[cfg(test)]
mod tests;

/// A sink that keeps the last transitions; heartbeats and selections are not transitions.
#[derive(Debug)]
pub struct History {
    capacity: usize,
    state: Mutex<HistoryState>,
}

#[derive(Debug, Default)]
struct HistoryState {
    transitions: VecDeque<Transition>,
    forgotten: u64,
    /// The cause of the latest change of a server, kept until the topology change that results from
    /// it.
    cause: Option<Cause>,
}

/// A change and its cause.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Transition {
    /// The sequence number of the event.
    pub seq: u64,
    /// The time of the event.
    pub at: Instant,
    /// The change that was recorded.
    pub change: Change,
    /// The cause of the change.
    pub cause: Cause,
}

/// The kind and content of a transition.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Monitoring began.
    Opened(ObjectId),
    /// Monitoring ended.
    Closed,
    /// A server joined.
    ServerAdded(ServerAddress),
    /// A server left.
    ServerRemoved {
        /// The address of the removed server.
        address: ServerAddress,
        /// The reason why the server was removed.
        reason: DepartureReason,
    },
    /// A server's description has changed.
    Server {
        /// The address of the server.
        address: ServerAddress,
        /// The previous server type.
        old: ServerType,
        /// The new server type.
        new: ServerType,
    },
    /// The topology's description has changed.
    Topology {
        /// The previous topology type.
        old: TopologyType,
        /// The new topology type.
        new: TopologyType,
        /// The primary after the change.
        primary: Option<ServerAddress>,
    },
    /// A pool was marked ready, so it may open connections.
    PoolReady(ServerAddress),
    /// A pool was cleared.
    PoolCleared {
        /// The pool's server.
        address: ServerAddress,
        /// The new generation.
        generation: Generation,
    },
    /// The number of members that were ignored because the server limit was reached.
    MembersIgnored(usize),
}

/// The cause of a change.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// The program opened the topology.
    Open,
    /// The program closed the topology.
    Close,
    /// A reply from a server.
    Reply(ServerAddress),
    /// An error from a server or from a connection to it.
    Error(ServerAddress, Error),
    /// A new list of hosts in the SRV record.
    Hosts,
}

impl History {
    /// Creates a history of up to `capacity` transitions.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, state: Mutex::default() }
    }

    /// Returns the transitions, oldest first.
    pub fn transitions(&self) -> Vec<Transition> {
        lock(&self.state).transitions.iter().cloned().collect()
    }

    /// Returns the number of old transitions that were discarded because the history was full.
    pub(crate) fn forgotten(&self) -> u64 {
        lock(&self.state).forgotten
    }
}

impl EventSink for History {
    fn emit(&self, event: &Event) {
        let mut state = lock(&self.state);
        let Some((change, cause)) = state.take_in(event) else {
            return;
        };
        state.transitions.push_back(Transition { seq: event.seq, at: event.at, change, cause });
        while state.transitions.len() > self.capacity {
            state.transitions.pop_front();
            state.forgotten += 1;
        }
    }

    fn interest(&self) -> Interest {
        Interest::DESCRIPTIONS.union(Interest::POOL_STATES)
    }
}

impl HistoryState {
    fn take_in(&mut self, event: &Event) -> Option<(Change, Cause)> {
        // A server's change is the cause of all events up to the topology's change. If servers are
        // added or removed without such a change, the cause is the SRV record's list of hosts.
        let current = self.cause.clone().unwrap_or(Cause::Hosts);
        Some(match &event.kind {
            EventKind::TopologyOpening => {
                self.cause = Some(Cause::Open);
                (Change::Opened(event.topology), Cause::Open)
            }
            EventKind::TopologyClosed => {
                self.blame_closing();
                (Change::Closed, Cause::Close)
            }
            EventKind::ServerOpening { address, .. } => {
                (Change::ServerAdded(address.clone()), current)
            }
            EventKind::ServerClosed { address, reason, .. } => {
                let change =
                    Change::ServerRemoved { address: address.clone(), reason: reason.clone() };
                (change, current)
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                let cause = Cause::of(new);
                // If several servers change, the server that replied changes first.
                if !matches!(self.cause, Some(Cause::Reply(_) | Cause::Error(..))) {
                    self.cause = Some(cause.clone());
                }
                let change = Change::Server {
                    address: new.address.clone(),
                    old: previous.server_type,
                    new: new.server_type,
                };
                (change, cause)
            }
            EventKind::TopologyDescriptionChanged { previous, new } => {
                // The seeds are opened after the first `TopologyDescriptionChanged`, so `Open` is
                // kept as the cause for them.
                if self.cause != Some(Cause::Open) {
                    self.cause = None;
                }
                let change = Change::Topology {
                    old: previous.topology_type(),
                    new: new.topology_type(),
                    primary: new.primary().map(|primary| primary.address.clone()),
                };
                (change, current)
            }
            EventKind::PoolReady { address, .. } => {
                let cause = Cause::Reply(address.clone());
                (Change::PoolReady(address.clone()), cause)
            }
            EventKind::PoolCleared { address, clear, .. } => {
                let change =
                    Change::PoolCleared { address: address.clone(), generation: clear.generation };
                (change, Cause::Error(address.clone(), clear.cause.clone()))
            }
            EventKind::MembersIgnored { ignored, .. } => {
                (Change::MembersIgnored(*ignored), current)
            }
            _ => return None,
        })
    }

    /// Sets the cause of the last removals, and of the topology's change after them, to `Close`,
    /// because `TopologyClosed` is published last.
    fn blame_closing(&mut self) {
        let mut last = self.transitions.iter_mut().rev().peekable();
        if let Some(transition) =
            last.next_if(|last| matches!(last.change, Change::Topology { .. }))
        {
            transition.cause = Cause::Close;
        }
        while let Some(transition) =
            last.next_if(|last| matches!(last.change, Change::ServerRemoved { .. }))
        {
            transition.cause = Cause::Close;
        }
    }
}

impl Cause {
    fn of(new: &ServerDescription) -> Self {
        let address = new.address.clone();
        match &new.error {
            Some(error) => Self::Error(address, error.clone()),
            None => Self::Reply(address),
        }
    }
}

impl fmt::Display for History {
    /// Writes one line for each transition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forgotten = self.forgotten();
        if forgotten > 0 {
            writeln!(f, "({forgotten} earlier transitions are not kept)")?;
        }
        for transition in self.transitions() {
            writeln!(f, "{transition}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.since(Instant::EPOCH).as_secs_f64();
        write!(f, "{at:12.3} s  #{:<5} {} ({})", self.seq, self.change, self.cause)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened(id) => write!(f, "topology {id} opened"),
            Self::Closed => f.write_str("topology closed"),
            Self::ServerAdded(address) => write!(f, "{address} added"),
            Self::ServerRemoved { address, reason } => {
                write!(f, "{address} removed: it {reason}")
            }
            Self::Server { address, old, new } if old == new => {
                write!(f, "{address} {new}, other details")
            }
            Self::Server { address, old, new } => write!(f, "{address} {old} -> {new}"),
            Self::Topology { old, new, primary } => {
                if old == new {
                    write!(f, "topology {new}")?;
                } else {
                    write!(f, "topology {old} -> {new}")?;
                }
                match primary {
                    Some(primary) => write!(f, ", primary {primary}"),
                    None => Ok(()),
                }
            }
            Self::PoolReady(address) => write!(f, "{address} pool ready"),
            Self::PoolCleared { address, generation } => {
                write!(f, "{address} pool cleared, generation {generation}")
            }
            Self::MembersIgnored(count) => write!(f, "{count} members ignored"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("opened by the program"),
            Self::Close => f.write_str("closed by the program"),
            Self::Reply(address) => write!(f, "reply of {address}"),
            Self::Error(address, error) => write!(f, "{address}: {error:#}"),
            Self::Hosts => f.write_str("list of hosts"),
        }
    }
}
