//! Effects of reported errors.

/// The effect of a reported error on the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorOutcome {
    /// The server is no longer part of the topology, or the topology is closed.
    UnknownServer,
    /// The connection's generation or the error's topology version is outdated.
    Stale,
    /// The error says nothing about the server's state.
    Irrelevant,
    /// The server was marked Unknown, and its pool was not cleared.
    MarkedUnknown,
    /// The server was marked Unknown and its pool was cleared.
    Cleared,
    /// The pool of the service behind the load balancer was cleared.
    ServiceCleared,
}
