//! The reasons why this client cannot use servers that may be healthy.

use core::fmt;

use super::{DepartureReason, TopologyDescription};
use crate::{
    address::ServerAddress,
    error::{Error, Stage},
    ids::ElectionTuple,
    server::ServerDescription,
};

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
