//! Servers whose replies produce a given description.

use bson::{DateTime, Document, doc};
use sdam_core::{
    address::ServerAddress,
    options::Options,
    read_preference::TagSet,
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};

pub(crate) const SET_NAME: &str = "rs";

/// Adds all servers of `target` and the extra seeds to the seeds in `options`.
pub(crate) fn with_seeds(mut options: Options, target: &TopologyDescription) -> Options {
    options.seeds = members(target).into_iter().chain(extra_seeds(target)).collect();
    match target.topology_type() {
        TopologyType::Unknown | TopologyType::Sharded => {}
        TopologyType::Single => options.direct_connection = Some(true),
        TopologyType::LoadBalanced => options.load_balanced = true,
        TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
            options.replica_set = Some(SET_NAME.into());
        }
    }
    options
}

/// Returns the addresses of the servers in `target`.
pub(crate) fn members(target: &TopologyDescription) -> Vec<ServerAddress> {
    let servers = target.servers().iter();
    servers.map(|server| server.address.clone()).collect()
}

/// Returns the additional seeds. They are needed to reach the target description, although it does
/// not contain them.
///
/// If a topology with several seeds finds that all of them are standalone servers, it has no
/// servers left. A server becomes a possible primary only if another server names it as the
/// primary.
pub(crate) fn extra_seeds(target: &TopologyDescription) -> Vec<ServerAddress> {
    let number = match target.servers() {
        [] => 2,
        servers => usize::from(servers.iter().any(|server| is_hinted(server))),
    };
    (0..number).map(|port| ServerAddress::new("extra", 1 + port as u16)).collect()
}

pub(crate) fn is_hinted(server: &ServerDescription) -> bool {
    server.server_type == ServerType::PossiblePrimary
}

/// Returns whether the server has answered a check.
pub(crate) fn is_checked(server: &ServerDescription) -> bool {
    server.server_type.is_available() && server.server_type != ServerType::LoadBalancer
}

/// Builds a hello reply that leads to the description `server`.
pub(crate) fn hello(
    server: &ServerDescription,
    members: &[ServerAddress],
) -> Result<Document, String> {
    let mut hello = base_hello(server.wire_versions.max);
    match server.server_type {
        ServerType::Standalone | ServerType::RsPrimary => {
            hello.insert("isWritablePrimary", true);
        }
        ServerType::Mongos => drop(hello.insert("msg", "isdbgrid")),
        ServerType::RsGhost => drop(hello.insert("isreplicaset", true)),
        ServerType::RsSecondary => drop(hello.insert("secondary", true)),
        other => return Err(format!("no reply makes a server {other}")),
    }
    if matches!(server.server_type, ServerType::RsPrimary | ServerType::RsSecondary) {
        let members: Vec<_> = members.iter().map(ToString::to_string).collect();
        hello.extend(doc! {
            "setName": SET_NAME, "hosts": members, "me": server.address.to_string(),
        });
    }
    if !server.tags.is_empty() {
        hello.insert("tags", tags(&server.tags));
    }
    if let Some(millis) = server.last_write_date {
        let date = DateTime::from_millis(millis);
        hello.insert("lastWrite", doc! { "lastWriteDate": date });
    }
    Ok(hello)
}

pub(crate) fn base_hello(max_wire_version: i32) -> Document {
    doc! { "ok": 1, "helloOk": true, "minWireVersion": 0, "maxWireVersion": max_wire_version }
}

/// Returns the hello reply of a standalone server.
pub(crate) fn standalone_hello(max_wire_version: i32) -> Result<Vec<u8>, String> {
    let mut hello = base_hello(max_wire_version);
    hello.insert("isWritablePrimary", true);
    encode(&hello)
}

fn tags(tags: &TagSet) -> Document {
    let tags = tags.iter();
    tags.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

pub(crate) fn encode(document: &Document) -> Result<Vec<u8>, String> {
    document.to_vec().map_err(|error| error.to_string())
}

/// Compares everything that is relevant to selection, except update times.
pub(crate) fn compare(
    target: &TopologyDescription,
    actual: &TopologyDescription,
) -> Result<(), String> {
    let servers = |topology: &TopologyDescription| -> Vec<_> {
        let servers = topology.servers().iter();
        let facts = servers.map(|server| {
            (
                server.address.clone(),
                server.server_type,
                server.tags.clone(),
                server.last_write_date,
                server.rtt.filter(|_| is_checked(server)).map(|rtt| rtt.average),
            )
        });
        facts.collect()
    };
    if target.topology_type() != actual.topology_type() || servers(target) != servers(actual) {
        return Err(not_reached(&format!("it is {actual}, expected {target}")));
    }
    Ok(())
}

pub(crate) fn not_reached(difference: &str) -> String {
    format!("the topology was not reached: {difference}")
}
