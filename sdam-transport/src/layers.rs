//! The layers between a server's address and the messages of a connection, and translations of
//! addresses.

use std::{collections::BTreeMap, fmt::Debug, str::FromStr, sync::Arc, time::Duration};

use sdam_core::{
    address::ServerAddress,
    options::{ConfigError, ProxyOptions},
};

use crate::tls::Tls;

/// The socket options, and the layers between a transport's sockets and its messages. By default,
/// none are set.
///
/// A topology creates them from its options, and adds them with
/// [`Transport::with_layers`](crate::connect::Transport::with_layers).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Layers {
    /// Translates the addresses of servers.
    pub translate: Option<Arc<dyn Translate>>,
    /// The proxy through which connections are opened.
    pub proxy: Option<ProxyOptions>,
    /// Encrypts connections and checks the servers' certificates.
    pub tls: Option<Arc<dyn Tls>>,
    /// The user timeout of TCP sockets, see [`Options::tcp_user_timeout`].
    ///
    /// [`Options::tcp_user_timeout`]: sdam_core::options::Options::tcp_user_timeout
    pub user_timeout: Option<Duration>,
}

/// The steps that a transport performs itself, without a layer of this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guards {
    /// The transport negotiates TLS on every connection, with its own options. A topology then
    /// refuses to start if a TLS option other than `tls=true` is set, because the option would be
    /// ignored.
    pub tls: bool,
    /// The transport opens every connection through the proxy.
    pub proxy: bool,
}

impl Guards {
    /// The value for a transport that connects directly and in plain text.
    pub const NONE: Self = Self { tls: false, proxy: false };

    /// Adds TLS to the steps that the transport performs itself.
    #[must_use]
    pub const fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Adds the proxy to the steps that the transport performs itself.
    #[must_use]
    pub const fn with_proxy(mut self) -> Self {
        self.proxy = true;
        self
    }
}

/// Translates the addresses of members that cannot be reached by their names, such as members of a
/// deployment inside Kubernetes or behind a tunnel.
///
/// The member keeps its name in descriptions and events, and TLS checks that name.
///
/// # Contract
///
/// - The caller holds no lock, and may call from any thread, for several members at once.
/// - `translate` returns immediately, because it is called for each connection attempt.
/// - Equal members are always translated to addresses of the same server.
pub trait Translate: Send + Sync + Debug + 'static {
    /// Returns the address to dial for `member`. Returns `member` itself if it can be dialled
    /// directly.
    fn translate(&self, member: &ServerAddress) -> ServerAddress;
}

/// A table of members and the addresses to dial for them. Members that are not in the table are
/// dialled by their names.
///
/// Suitable for port forwarders with one local port per member, such as SSH tunnels,
/// `kubectl port-forward` or published container ports:
///
/// ```
/// use sdam_core::address::ServerAddress;
/// use sdam_transport::layers::{AddressTable, Translate as _};
///
/// let table: AddressTable = "mongo-0=localhost:30001, mongo-1=localhost:30002".parse()?;
/// let member = ServerAddress::new("mongo-1", 27017);
/// assert_eq!(table.translate(&member).as_str(), "localhost:30002");
/// # Ok::<(), sdam_core::options::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressTable(BTreeMap<ServerAddress, ServerAddress>);

impl AddressTable {
    /// Parses comma-separated entries `member=place`. Both parts are addresses, written as in a
    /// connection string; white space around them is ignored.
    ///
    /// # Errors
    ///
    /// If an entry is malformed, or a member has two entries.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut table = BTreeMap::new();
        for entry in text.split(',').map(str::trim) {
            let invalid = |reason: &str, remedy: &str| {
                ConfigError::new("entry of the address table", entry, reason, remedy)
            };
            let (member, place) = entry.split_once('=').ok_or_else(|| {
                let remedy = "write `member=place`, such as `mongo-0:27017=localhost:30001`";
                invalid("it has no `=`", remedy)
            })?;
            let address = |text: &str| {
                ServerAddress::parse(text.trim()).map_err(|error| {
                    let reason = format!("`{}`: {}", error.value(), error.reason());
                    invalid(&reason, error.remedy())
                })
            };
            if table.insert(address(member)?, address(place)?).is_some() {
                let reason = "this member has an entry already";
                return Err(invalid(reason, "leave one of the two out"));
            }
        }
        Ok(Self(table))
    }
}

impl FromStr for AddressTable {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text)
    }
}

impl FromIterator<(ServerAddress, ServerAddress)> for AddressTable {
    /// Collects pairs of a member and the address to dial. If a member occurs twice, its last pair
    /// wins.
    fn from_iter<I: IntoIterator<Item = (ServerAddress, ServerAddress)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl Translate for AddressTable {
    fn translate(&self, member: &ServerAddress) -> ServerAddress {
        self.0.get(member).unwrap_or(member).clone()
    }
}

/// Dials all members at the same host, and each member at its own port.
///
/// Suitable for tunnels that keep the ports. The members must have different ports; otherwise
/// several of them would lead to the same server, so use an [`AddressTable`] in that case. Unix
/// domain sockets are dialled by their paths.
///
/// ```
/// use sdam_core::address::ServerAddress;
/// use sdam_transport::layers::{HostTranslation, Translate as _};
///
/// let tunnel = HostTranslation::new("localhost");
/// let member = ServerAddress::new("mongo-1", 27018);
/// assert_eq!(tunnel.translate(&member).as_str(), "localhost:27018");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTranslation(Box<str>);

impl HostTranslation {
    /// Creates the translation to `host`: a name or an IP address (IPv6 without brackets).
    pub fn new(host: impl Into<Box<str>>) -> Self {
        Self(host.into())
    }
}

impl Translate for HostTranslation {
    fn translate(&self, member: &ServerAddress) -> ServerAddress {
        match member.port() {
            Some(port) => ServerAddress::new(&self.0, port),
            None => member.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> ServerAddress {
        ServerAddress::parse(text).unwrap()
    }

    #[test]
    fn a_member_of_the_table_is_dialled_at_its_place_and_others_by_their_names() {
        let table = AddressTable::parse("Mongo-0=localhost:30001,[::1]:5=10.0.0.1").unwrap();
        let check = |member: &str, place: &str| {
            assert_eq!(table.translate(&address(member)), address(place));
        };
        check("mongo-0:27017", "localhost:30001");
        check("[::1]:5", "10.0.0.1:27017");
        check("mongo-0:27018", "mongo-0:27018");
        check("/tmp/mongodb.sock", "/tmp/mongodb.sock");
        let spaced = AddressTable::parse(" mongo-0 = localhost:30001 ,\n [::1]:5=10.0.0.1\n");
        assert_eq!(spaced.unwrap(), table);
    }

    #[test]
    fn a_malformed_entry_is_named_with_the_remedy() {
        let check = |text: &str, expected: &str| {
            let error = AddressTable::parse(text).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(
            "a=b,mongo-0:27017",
            "`entry of the address table` is `mongo-0:27017`: it has no `=`; write `member=place`, \
             such as `mongo-0:27017=localhost:30001`",
        );
        check(
            "a=b,",
            "`entry of the address table`: it has no `=`; write `member=place`, such as \
             `mongo-0:27017=localhost:30001`",
        );
        check(
            "a=b:x",
            "`entry of the address table` is `a=b:x`: `b:x`: the port must be a number from 1 to \
             65535; write host, host:port or [IPv6]:port",
        );
        check(
            "a=b,a:27017=c",
            "`entry of the address table` is `a:27017=c`: this member has an entry already; leave \
             one of the two out",
        );
    }

    #[test]
    fn a_tunnel_keeps_the_port_and_leaves_sockets_of_the_system_alone() {
        let check = |host: &str, member: &str, place: &str| {
            let translated = HostTranslation::new(host).translate(&address(member));
            assert_eq!(translated, address(place));
        };
        check("localhost", "mongo-0:27018", "localhost:27018");
        check("::1", "[fd00::1]:27019", "[::1]:27019");
        check("localhost", "/tmp/mongodb.sock", "/tmp/mongodb.sock");
    }
}
