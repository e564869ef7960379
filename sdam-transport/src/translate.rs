//! Translates member addresses to the addresses to dial.

use std::{collections::BTreeMap, str::FromStr};

use sdam_core::{address::ServerAddress, options::ConfigError};

use crate::layers::Translate;

/// A table of members and the addresses to dial for them. Members that are not in the table are
/// dialled by their names.
///
/// Suitable for port forwarders with one local port per member, such as SSH tunnels,
/// `kubectl port-forward` or published container ports:
///
/// ```
/// use sdam_core::address::ServerAddress;
/// use sdam_transport::{layers::Translate as _, translate::AddressTable};
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
/// use sdam_transport::{layers::Translate as _, translate::HostTranslation};
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
        let pairs = [("mongo-0", "localhost:30001"), ("[::1]:5", "10.0.0.1")];
        let pairs = pairs.map(|(member, place)| (address(member), address(place)));
        assert_eq!(AddressTable::from_iter(pairs), table);
    }

    #[test]
    fn white_space_around_addresses_is_ignored() {
        let spaced = AddressTable::parse(" a:1 = b:2 ,\n c:3=d:4\n").unwrap();
        assert_eq!(spaced, AddressTable::parse("a:1=b:2,c:3=d:4").unwrap());
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
