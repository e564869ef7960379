//! Descriptions for the tests of this crate.

pub(crate) mod any;

use core::time::Duration;

use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    ids::ServerId,
    read_preference::TagSet,
    server::{Rtt, ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

/// Returns the address of the server with this number: `s01:27017` and so on.
pub(crate) fn address(number: u64) -> ServerAddress {
    ServerAddress::new(&std::format!("s{number:02}"), 27017)
}

/// Returns a server of this type. If the type counts as available, the server has a round-trip time
/// of 5 ms.
pub(crate) fn server(number: u64, server_type: ServerType) -> ServerDescription {
    let mut server = ServerDescription::unknown(ServerId::from_u64(number), address(number));
    server.server_type = server_type;
    if server_type.is_available() {
        server.wire_versions.max = 21;
        with_rtt(server, 5)
    } else {
        server
    }
}

/// Returns a server that could not be reached.
pub(crate) fn failed(
    number: u64,
    kind: ErrorKind,
    stage: Stage,
    message: &str,
) -> ServerDescription {
    let error = Error::new(kind, stage, message);
    let id = ServerId::from_u64(number);
    ServerDescription::failed(id, address(number), error, Instant::EPOCH)
}

pub(crate) fn with_rtt(mut server: ServerDescription, millis: u64) -> ServerDescription {
    server.rtt = Some(Rtt { average: Duration::from_millis(millis), ..Rtt::default() });
    server
}

pub(crate) fn tags(tags: &[(&str, &str)]) -> TagSet {
    tags.iter().copied().collect()
}

pub(crate) fn topology(
    topology_type: TopologyType,
    servers: impl IntoIterator<Item = ServerDescription>,
) -> TopologyDescription {
    TopologyDescription::new(topology_type, servers)
}
