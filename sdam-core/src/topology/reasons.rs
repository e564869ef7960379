//! The reasons why servers left the topology, and why this client cannot use servers that may be
//! healthy.

use alloc::{boxed::Box, sync::Arc};
use core::fmt;

use super::{TopologyDescription, TopologyType};
use crate::{
    address::ServerAddress,
    error::{Error, Stage},
    ids::{ElectionTuple, ServerId},
    options::Escaped,
    server::{ServerDescription, ServerType},
};

/// A server that has left the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Departure {
    /// The server id.
    pub server: ServerId,
    /// The server's address.
    pub address: ServerAddress,
    /// The reason why the server left.
    pub reason: DepartureReason,
}

/// The reason why a server left the topology.
///
/// `{}` states the reason, without the server's address, and the remedy if there is exactly one:
/// ``belongs to the set `rs0`, not `wrong`: use replicaSet=rs0``.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DepartureReason {
    /// The topology was closed (SDAM Logging and Monitoring: "Closing").
    Closed,
    /// The SRV record no longer lists the server (Polling SRV Records for mongos Discovery).
    HostsChanged,
    /// The server reports an address for itself that differs from the one that the client uses
    /// (SDAM: "updateRSWithoutPrimary", "updateRSWithPrimaryFromMember").
    Misnamed {
        /// The address that the server reports.
        me: ServerAddress,
    },
    /// The primary does not list the server as a member (SDAM: "updateRSFromPrimary").
    NotListed {
        /// The primary, which is the server itself if it does not list itself.
        primary: ServerAddress,
    },
    /// A standalone server was one of several seeds (SDAM: "updateUnknownWithStandalone").
    OneOfSeveralSeeds,
    /// The server belongs to another replica set (SDAM: "updateRSWithoutPrimary",
    /// "updateRSWithPrimaryFromMember", "updateRSFromPrimary").
    WrongSetName {
        /// The name of the server's set; `None` if the server belongs to no set.
        found: Option<Box<str>>,
        /// The expected set name, configured or discovered.
        wanted: Arc<str>,
    },
    /// A server of this type cannot be part of the topology (SDAM: "TopologyType table").
    WrongType {
        /// The server's type.
        server: ServerType,
        /// The topology's type.
        topology: TopologyType,
    },
}

impl Departure {
    /// The maximum number of departures that a description keeps.
    pub const REMEMBERED: usize = 16;

    /// Creates the departure of `server` at `address` for `reason`.
    pub const fn new(server: ServerId, address: ServerAddress, reason: DepartureReason) -> Self {
        Self { server, address, reason }
    }
}

impl DepartureReason {
    /// Returns whether this reason alone shows that the client's configuration is probably wrong.
    /// All other reasons also occur in normal operation.
    pub const fn is_mistake(&self) -> bool {
        matches!(self, Self::OneOfSeveralSeeds | Self::WrongSetName { .. } | Self::WrongType { .. })
    }
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            DepartureReason::NotListed { primary } if *primary == self.address => {
                write!(f, "{primary} is primary, but does not name itself as a member of the set")
            }
            reason => write!(f, "{} {reason}", self.address),
        }
    }
}

impl fmt::Display for DepartureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("is not watched any more: the topology was closed"),
            Self::HostsChanged => f.write_str("is not in the SRV record any more"),
            Self::Misnamed { me } => write!(f, "calls itself {me}: use that address"),
            Self::NotListed { primary } => {
                write!(f, "is no member, or a hidden one, according to the primary {primary}")
            }
            Self::OneOfSeveralSeeds => f.write_str(
                "is a standalone server, which must be the only host of the connection string",
            ),
            Self::WrongSetName { found: Some(found), wanted } => {
                let (found, wanted) = (Escaped(found), Escaped(wanted));
                write!(f, "belongs to the set `{found}`, not `{wanted}`: use replicaSet={found}")
            }
            Self::WrongSetName { found: None, wanted } => {
                let wanted = Escaped(wanted);
                write!(f, "belongs to no set, and not to `{wanted}`: leave replicaSet out")
            }
            Self::WrongType { server, topology } => {
                let topology = match topology {
                    TopologyType::Sharded => "a sharded cluster",
                    _ => "a replica set",
                };
                write!(f, "is {}, and no part of {topology}", kind(*server))
            }
        }
    }
}

/// The reason why this client cannot use a server until a name, a proxy, a certificate or the
/// client's configuration is changed.
///
/// `{}` describes the problem, without the server's address; [`remedy`](Self::remedy) returns the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The server answered at one address, but the client cannot reach it under its own name: the
    /// replica set is behind a tunnel or in containers, or has split horizons.
    NamesDiffer {
        /// The address at which the server answered.
        connected: ServerAddress,
        /// The server's own name, `me`.
        me: ServerAddress,
        /// The error from looking up that name or connecting to it.
        error: Error,
    },
    /// The host name cannot be resolved.
    Unresolvable {
        /// True if the name comes from the replica set's own configuration.
        advertised: bool,
        /// The error.
        error: Error,
    },
    /// The client cannot connect through the proxy.
    Proxy(Error),
    /// TLS cannot be negotiated.
    Tls(Error),
}

impl Obstacle {
    /// The remedy if the client cannot reach servers by the names in their replica set's
    /// configuration. Addresses are translated by `TopologyBuilder::translate`.
    pub const NAMES: &'static str = "make the set's names usable here (DNS, hosts file, or run in \
        the servers' network), or connect to one member alone (directConnection=true), or say where \
        to dial for each name (address translation); if the set has \
        horizons for clients outside, connect with TLS to the names of these";
    /// The remedy for servers that do not answer attempts to connect.
    pub const SILENT: &'static str = "a firewall, a security group or an allow list seems to drop \
        the packets, or the host is down: let this machine connect to the port (a hosting service \
        needs its address on the allow list); raise connectTimeoutMS if the server is far away";
    /// The remedy for Unix domain sockets that cannot be connected to.
    pub const SOCKET: &'static str = "check that the server runs on this machine, that the path is \
        the one of its socket (net.unixDomainSocket.pathPrefix), and that this user may read and \
        write it (filePermissions)";
    /// The remedy for a configured host name that cannot be resolved.
    pub const SPELLING: &'static str = "check the spelling of the host names, and the name server";
    /// The remedy for connections that fail at the proxy.
    pub const PROXY: &'static str = "check that the proxy runs, that proxyHost, proxyPort, \
        proxyUsername and proxyPassword are right, and that the proxy reaches the servers by their \
        names";
    /// The remedy for TLS that cannot be negotiated.
    pub const TLS: &'static str = "trust the authority of the servers' certificates (tlsCAFile) and \
        connect by names that the certificates have; servers without TLS need tls=false";

    /// Returns the remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NamesDiffer { .. } | Self::Unresolvable { advertised: true, .. } => Self::NAMES,
            Self::Unresolvable { .. } => Self::SPELLING,
            Self::Proxy(_) => Self::PROXY,
            Self::Tls(_) => Self::TLS,
        }
    }

    /// Returns the error that revealed the obstacle.
    pub fn error(&self) -> &Error {
        match self {
            Self::NamesDiffer { error, .. }
            | Self::Unresolvable { error, .. }
            | Self::Proxy(error)
            | Self::Tls(error) => error,
        }
    }
}

impl TopologyDescription {
    /// Returns the reason why this client cannot use `server`, a server of this topology; `None` if
    /// the client can use it, or if only the server itself can be at fault.
    pub fn obstacle(&self, server: &ServerDescription) -> Option<Obstacle> {
        let error = server.error.as_ref().filter(|error| error.is_network())?;
        let own = || error.clone();
        match error.stage() {
            Stage::Dns | Stage::Connect if let Some(connected) = self.alias(&server.address) => {
                Some(Obstacle::NamesDiffer {
                    connected: connected.clone(),
                    me: server.address.clone(),
                    error: own(),
                })
            }
            Stage::Dns => Some(Obstacle::Unresolvable {
                advertised: self.is_advertised(&server.address),
                error: own(),
            }),
            Stage::Proxy => Some(Obstacle::Proxy(own())),
            Stage::Tls => Some(Obstacle::Tls(own())),
            _ => None,
        }
    }

    /// Returns whether `address` comes from the replica set's configuration. In a replica set, this
    /// is assumed if a primary has answered before, if an answering member names `address`, or if a
    /// server has answered with a name other than the one that the client uses.
    pub fn is_advertised(&self, address: &ServerAddress) -> bool {
        let named = || {
            let mut named = self.servers.iter().flat_map(|server| server.members());
            named.any(|member| member == address)
        };
        self.topology_type.is_replica_set()
            && (self.max_election != ElectionTuple::default()
                || self.aliases().next().is_some()
                || named())
    }

    /// Returns the address under which a server was removed because it calls itself `me`; `None` if
    /// the server has since answered under that name.
    fn alias(&self, me: &ServerAddress) -> Option<&ServerAddress> {
        let mut aliases = self.aliases();
        aliases.find_map(|(address, own)| (own == me).then_some(address))
    }

    fn aliases(&self) -> impl Iterator<Item = (&ServerAddress, &ServerAddress)> {
        self.departures.iter().filter_map(|departure| match &departure.reason {
            DepartureReason::Misnamed { me } => Some((&departure.address, me)),
            _ => None,
        })
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NamesDiffer { connected, me, error } => {
                let verb = if error.stage() == Stage::Dns { "resolved" } else { "reached" };
                write!(
                    f,
                    "the set calls itself {me}, you connected to {connected}: {me} cannot be {verb} \
                     from here"
                )
            }
            Self::Unresolvable { advertised: true, .. } => {
                f.write_str("the set names it as a member, but it cannot be resolved from here")
            }
            Self::Unresolvable { .. } => f.write_str("it cannot be resolved from here"),
            Self::Proxy(error) => f.write_str(error.message()),
            Self::Tls(error) => write!(f, "TLS could not be negotiated: {}", error.message()),
        }
    }
}

fn kind(server: ServerType) -> &'static str {
    match server {
        ServerType::Standalone => "a standalone server",
        ServerType::Mongos => "a mongos",
        ServerType::RsGhost => "a member of a replica set without its configuration",
        _ => "a member of a replica set",
    }
}
