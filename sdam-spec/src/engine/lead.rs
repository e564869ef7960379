//! Leading a topology to a given description by nothing but what its servers say, and when.

use std::time::Duration;

use bson::{DateTime, Document, doc};
use sdam::topology::Topology;
use sdam_core::{
    address::ServerAddress,
    options::Options,
    read_preference::TagSet,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

use super::stage::Stage;

const SET_NAME: &str = "rs";

/// Longer than any round trip, so that there is time for all of them before the first update.
const PRELUDE: Duration = Duration::from_secs(10);

/// What happens at one moment to a server's first check.
struct Step {
    at: Instant,
    address: ServerAddress,
    /// `None`: the connection opens and the check begins.
    reply: Option<Vec<u8>>,
}

/// Starts a topology on a slow `stage` and leads it to `wanted`: the same types, round-trip times,
/// tags and last writes, and updates equally far apart.
///
/// # Errors
///
/// If it ends up elsewhere.
pub(super) fn lead_to(
    stage: &Stage<'_>,
    wanted: &TopologyDescription,
    options: Options,
) -> Result<Topology, String> {
    let servers = wanted.servers().iter();
    let own: Vec<_> = servers.map(|server| server.address.clone()).collect();
    let extras = extras(wanted);
    let seeds = own.iter().chain(&extras).cloned().collect();
    let options = options.with_seeds(seeds);
    let options = match wanted.topology_type() {
        TopologyType::Unknown | TopologyType::Sharded => options,
        TopologyType::Single => options.with_direct_connection(true),
        TopologyType::LoadBalanced => options.with_load_balanced(true),
        TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
            options.with_replica_set(SET_NAME)
        }
    };
    let topology = stage.start(options, |builder| builder)?;
    for extra in &extras {
        come_and_go(stage, extra, wanted)?;
    }
    let zero = stage.now() + PRELUDE;
    for step in steps(wanted, &own, zero)? {
        stage.clock.advance_to(step.at);
        stage.settle();
        match &step.reply {
            None => stage.transport.admit(&step.address)?,
            Some(reply) => stage.transport.answer(&step.address, Some(reply))?,
        }
        stage.settle();
    }
    compare(wanted, topology.snapshot().description(), zero)
        .map_err(|difference| format!("the topology was not reached: {difference}"))?;
    Ok(topology)
}

/// Seeds that are not wanted, but needed on the way.
///
/// A deployment without servers is left when all its seeds turn out to be standalone servers, of
/// which there have to be two. That a server might be the primary has to be said by another one.
fn extras(wanted: &TopologyDescription) -> Vec<ServerAddress> {
    let number = match wanted.servers() {
        [] => 2,
        servers => usize::from(servers.iter().any(|server| is_hinted(server))),
    };
    (0..number)
        .map(|port| ServerAddress::new("extra", 1 + port as u16))
        .collect()
}

fn is_hinted(server: &ServerDescription) -> bool {
    server.server_type == ServerType::PossiblePrimary
}

/// Lets the server at `address` tell its opinion, and then that it does not belong here.
fn come_and_go(
    stage: &Stage<'_>,
    address: &ServerAddress,
    wanted: &TopologyDescription,
) -> Result<(), String> {
    stage.transport.admit(address)?;
    stage.settle();
    for hinted in wanted.servers().iter().filter(|server| is_hinted(server)) {
        let mut opinion = greeting(25);
        opinion.extend(doc! {
            "secondary": true,
            "setName": SET_NAME,
            "hosts": [address.to_string(), hinted.address.to_string()],
            "primary": hinted.address.to_string(),
        });
        stage.answer(address, Some(&encode(&opinion)?))?;
    }
    let mut farewell = greeting(25);
    farewell.insert("isWritablePrimary", true);
    stage.answer(address, Some(&encode(&farewell)?))
}

/// Every check begins a round trip before the update that it leads to. Updates are counted from
/// `zero`.
fn steps(
    wanted: &TopologyDescription,
    own: &[ServerAddress],
    zero: Instant,
) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for server in wanted.servers().iter().filter(|server| is_asked(server)) {
        let update = server.last_update_time.unwrap_or(Instant::EPOCH);
        let at = zero + update.since(Instant::EPOCH);
        let rtt = server.rtt.map_or(Duration::ZERO, |rtt| rtt.average);
        let address = server.address.clone();
        steps.push(Step {
            at: at - rtt,
            address: address.clone(),
            reply: None,
        });
        steps.push(Step {
            at,
            address,
            reply: Some(encode(&hello(server, own)?)?),
        });
    }
    steps.sort_by_key(|step| step.at);
    Ok(steps)
}

/// Whether the server has answered a check.
fn is_asked(server: &ServerDescription) -> bool {
    server.server_type.is_available() && server.server_type != ServerType::LoadBalancer
}

/// What the server says of itself.
fn hello(server: &ServerDescription, members: &[ServerAddress]) -> Result<Document, String> {
    let mut hello = greeting(server.wire_versions.max);
    match server.server_type {
        ServerType::Standalone | ServerType::RsPrimary => {
            hello.insert("isWritablePrimary", true);
        }
        ServerType::Mongos => drop(hello.insert("msg", "isdbgrid")),
        ServerType::RsGhost => drop(hello.insert("isreplicaset", true)),
        ServerType::RsSecondary => drop(hello.insert("secondary", true)),
        other => return Err(format!("nothing makes a server a {other} here")),
    }
    if matches!(
        server.server_type,
        ServerType::RsPrimary | ServerType::RsSecondary
    ) {
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

fn greeting(max_wire_version: i32) -> Document {
    doc! { "ok": 1, "helloOk": true, "minWireVersion": 0, "maxWireVersion": max_wire_version }
}

fn tags(tags: &TagSet) -> Document {
    let tags = tags.iter();
    tags.map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

fn encode(document: &Document) -> Result<Vec<u8>, String> {
    document.to_vec().map_err(|error| error.to_string())
}

/// Compares all that matters to selection.
fn compare(
    wanted: &TopologyDescription,
    actual: &TopologyDescription,
    zero: Instant,
) -> Result<(), String> {
    let servers = |topology: &TopologyDescription| -> Vec<_> {
        let servers = topology.servers().iter();
        let facts = servers.map(|server| {
            (
                server.address.clone(),
                server.server_type,
                server.tags.clone(),
                server.last_write_date,
                server
                    .rtt
                    .filter(|_| is_asked(server))
                    .map(|rtt| rtt.average),
            )
        });
        facts.collect()
    };
    if wanted.topology_type() != actual.topology_type() || servers(wanted) != servers(actual) {
        return Err(format!("there is {actual}, wanted {wanted}"));
    }
    for (wanted, actual) in wanted.servers().iter().zip(actual.servers()) {
        let expected = wanted.last_update_time.filter(|_| is_asked(wanted));
        let expected = expected.map(|update| zero + update.since(Instant::EPOCH));
        if expected.is_some() && actual.last_update_time != expected {
            return Err(format!(
                "{} was updated at {:?}, wanted {expected:?}",
                actual.address, actual.last_update_time
            ));
        }
    }
    Ok(())
}
