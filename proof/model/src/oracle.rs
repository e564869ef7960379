//! Invariants of descriptions, events, pools and the order of outputs.

use std::{cmp::Ordering, sync::Arc};

use sdam_core::{
    deployment::{Deployment, Output, Outputs, Role},
    error::{ErrorKind, Stage},
    event::EventKind,
    ids::{ElectionTuple, Generation, ServerId},
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};

/// The published descriptions before and after a step.
pub(crate) struct Change<'w> {
    pub(crate) before: &'w Arc<TopologyDescription>,
    pub(crate) after: &'w Arc<TopologyDescription>,
}

/// The state of a server's pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) generation: Generation,
    pub(crate) ready: bool,
}

/// Returns whether operations may be sent to the server.
pub fn is_selectable(topology: &TopologyDescription, server: &ServerDescription) -> bool {
    server.server_type.is_data_bearing()
        || topology.topology_type() == TopologyType::Single && server.server_type.is_available()
}

/// Checks P1: there is at most one primary, and the type of the topology agrees with that. Returns
/// the violation, if any.
pub fn one_primary(topology: &TopologyDescription) -> Option<String> {
    let primaries = topology
        .servers()
        .iter()
        .filter(|server| server.server_type == ServerType::RsPrimary)
        .count();
    let allowed = match topology.topology_type() {
        TopologyType::ReplicaSetWithPrimary => primaries == 1,
        TopologyType::Single => true,
        _ => primaries == 0,
    };
    (!allowed).then(|| format!("{primaries} primaries in {topology}"))
}

/// Returns whether `outputs` clear the server's pool.
pub(crate) fn clears(outputs: &Outputs, of: ServerId) -> bool {
    outputs.iter().any(|output| matches!(output, Output::PoolClear { server, .. } if *server == of))
}

/// Returns whether the output only concerns the detection of silent servers. Such an output reports
/// that a server is silent or answers again, changes a timer, or uses a connection for measurements
/// or probes.
pub(crate) fn is_about_silence(output: &Output) -> bool {
    match output {
        Output::Wake { .. }
        | Output::Emit(
            EventKind::ServerSuspected { .. } | EventKind::ServerSuspicionEnded { .. },
        ) => true,
        Output::Connect { conn, .. } | Output::Send { conn, .. } | Output::Disconnect { conn } => {
            conn.role != Role::Check
        }
        _ => false,
    }
}

/// Checks that outputs come in the order that [`Outputs`] documents. Heartbeat events and requests
/// made by checks may come anywhere.
pub(crate) fn order(outputs: &Outputs, opening: bool) -> Result<(), String> {
    let rank = |output: &Output| match output {
        Output::OpenServer { .. } => Some(1),
        Output::PoolReady { .. } => Some(2),
        Output::Publish(_) => Some(3),
        Output::Emit(EventKind::TopologyOpening) if opening => Some(0),
        Output::Emit(EventKind::TopologyClosed) => Some(9),
        Output::Emit(
            EventKind::ServerHeartbeatStarted(_)
            | EventKind::ServerHeartbeatSucceeded { .. }
            | EventKind::ServerHeartbeatFailed { .. }
            | EventKind::ServerSuspected { .. }
            | EventKind::ServerSuspicionEnded { .. },
        )
        | Output::Wake { .. }
        | Output::Connect { .. }
        | Output::Send { .. }
        | Output::Read { .. }
        | Output::Disconnect { .. }
        | Output::LookUp { .. }
        | Output::Choose
        | Output::Probe { .. }
        | Output::Finish(_) => None,
        Output::Emit(_) => Some(4),
        Output::PoolClear { .. } => Some(6),
        Output::CloseServer { .. } => Some(7),
    };
    let sorted = outputs.iter().filter_map(rank).is_sorted();
    ensure(sorted, || format!("the outputs are not in the documented order: {outputs:?}"))?;
    let ends = outputs.iter().position(|output| {
        matches!(output, Output::Emit(EventKind::ServerHeartbeatSucceeded { .. }))
    });
    let published = outputs.iter().position(|output| matches!(output, Output::Publish(_)));
    ensure(published.is_none_or(|published| ends.is_none_or(|ends| ends < published)), || {
        format!("F-56: a heartbeat ends after its consequences: {outputs:?}")
    })
}

/// Checks the outputs for opening a deployment behind a load balancer (J-13, J-21).
pub(crate) fn opening(outputs: &Outputs) -> Result<(), String> {
    let expected = [
        "TopologyOpening",
        "OpenServer",
        "TopologyDescriptionChanged",
        "ServerOpening",
        "PoolReady",
        "Publish",
        "ServerDescriptionChanged",
        "TopologyDescriptionChanged",
    ];
    let name = |output: &Output| match output {
        Output::Emit(event) => event.name().as_str(),
        Output::OpenServer { .. } => "OpenServer",
        Output::PoolReady { .. } => "PoolReady",
        Output::Publish(_) => "Publish",
        _ => "another output",
    };
    ensure(outputs.iter().map(name).eq(expected), || {
        format!("J-21: a load balancer is opened by {outputs:?}")
    })
}

/// Checks that a failed check makes the server Unknown and clears its pool. A check that failed
/// because of a panic must not clear the pool.
pub(crate) fn failed_checks(after: &TopologyDescription, outputs: &Outputs) -> Result<(), String> {
    for output in outputs {
        let Output::Emit(EventKind::ServerHeartbeatFailed { heartbeat, failure, .. }) = output
        else {
            continue;
        };
        let server = heartbeat.server;
        let known =
            after.server_by_id(server).is_some_and(|server| server.server_type.is_available());
        let cleared = clears(outputs, server);
        let holds = match failure.kind() {
            // The check was cancelled because of the error of an operation. That error has its own
            // consequences.
            ErrorKind::Cancelled => true,
            ErrorKind::Internal => !known && !cleared,
            _ => !known && cleared,
        };
        ensure(holds, || {
            format!("F-50: after a failed check, known: {known}, cleared: {cleared}: {outputs:?}")
        })?;
    }
    Ok(())
}

/// Checks that each change is published exactly once, and that unchanged descriptions are not
/// published.
pub(crate) fn publication(change: &Change<'_>, outputs: &Outputs) -> Result<(), String> {
    let mut published = outputs.iter().filter_map(|output| match output {
        Output::Publish(description) => Some(description),
        _ => None,
    });
    let first = published.next();
    ensure(published.next().is_none(), || "the description is published twice".into())?;
    match first {
        Some(description) => ensure(Arc::ptr_eq(description, change.after), || {
            format!("{description} is published, but the description is {}", change.after)
        }),
        None => ensure(change.before == change.after, || {
            format!("the description changed and was not published: {}", change.after)
        }),
    }
}

/// Checks that events report every change of the topology without gaps or repetitions.
pub(crate) fn events(
    change: &Change<'_>,
    reported: &mut Arc<TopologyDescription>,
    outputs: &Outputs,
) -> Result<(), String> {
    let mut servers: Vec<ServerId> = change.before.servers().iter().map(|own| own.id).collect();
    for output in outputs {
        let Output::Emit(event) = output else {
            continue;
        };
        match event {
            EventKind::TopologyDescriptionChanged { previous, new } => {
                ensure(previous == reported, || {
                    format!("the topology was {reported}, but the event changes it from {previous}")
                })?;
                ensure(previous != new, || {
                    format!("J-18: an event changes the topology {new} to the same value")
                })?;
                if let Some(reason) = election(previous, new) {
                    return Err(format!("P2: {reason}"));
                }
                *reported = Arc::clone(new);
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                ensure(previous != new, || {
                    format!("J-18: an event changes {new} to the same value")
                })?;
                ensure(servers.contains(&new.id), || {
                    format!("an event changes {new}, which is not in the topology")
                })?;
            }
            EventKind::ServerOpening { server, .. } => servers.push(*server),
            EventKind::ServerClosed { server, .. } => servers.retain(|own| own != server),
            _ => {}
        }
    }
    let mut present: Vec<ServerId> = change.after.servers().iter().map(|own| own.id).collect();
    servers.sort_unstable();
    present.sort_unstable();
    ensure(servers == present, || {
        format!("the events report servers {servers:?}, but the topology has {present:?}")
    })?;
    ensure(reported == change.after, || {
        format!("the topology is {}, but the events report {reported}", change.after)
    })
}

/// Makes a pool ready, and checks that this is allowed.
pub(crate) fn ready(
    after: &TopologyDescription,
    about: Option<ServerId>,
    server: ServerId,
    pool: &mut Pool,
) -> Result<(), String> {
    ensure(!pool.ready, || format!("the pool of server {server} becomes ready while it is ready"))?;
    pool.ready = true;
    let known = after.server_by_id(server);
    ensure(known.is_some_and(|known| is_selectable(after, known)), || {
        format!("F-60: the pool of {known:?}, which is not selectable, becomes ready")
    })?;
    ensure(about == Some(server), || {
        format!("the pool of server {server} becomes ready in a step of another server")
    })
}

/// Clears a pool, and checks that this is allowed.
pub(crate) fn clear(
    after: &TopologyDescription,
    server: ServerId,
    clear: &PoolClear,
    pool: &mut Pool,
) -> Result<(), String> {
    let whole = clear.service_id.is_none() && clear.generation == pool.generation.next();
    ensure(whole, || {
        format!("the pool of server {server} of generation {}: {clear:?}", pool.generation)
    })?;
    ensure(clear.was_paused != pool.ready, || {
        format!("F-63: server {server}: {clear:?} does not match {pool:?}")
    })?;
    (pool.generation, pool.ready) = (clear.generation, false);
    let known = after.server_by_id(server);
    ensure(known.is_some_and(|known| !known.server_type.is_available()), || {
        format!("F-64: the pool of {known:?} is cleared before the server is Unknown")
    })
}

/// Checks the invariants that hold in every state.
pub(crate) fn state(deployment: &Deployment, pools: &[(ServerId, Pool)]) -> Result<(), String> {
    let topology = deployment.description();
    if let Some(wrong) = one_primary(topology) {
        return Err(format!("P1: {wrong}"));
    }
    ensure(pools.len() == topology.servers().len(), || {
        format!("there are pools {pools:?} for {topology}")
    })?;
    for server in topology.servers() {
        let Some((_, pool)) = pools.iter().find(|(id, _)| *id == server.id) else {
            return Err(format!("{server} has no pool"));
        };
        let generation = deployment.generation(server.id, None);
        ensure(generation == Some(pool.generation), || {
            format!("the machine has generation {generation:?}, but the pool is {pool:?}")
        })?;
        check_pool(topology, server, pool.ready)?;
        let available = server.server_type.is_available();
        let measured = available && server.server_type != ServerType::LoadBalancer;
        ensure(measured == server.rtt.is_some(), || format!("G-3: {server} has {:?}", server.rtt))?;
        ensure(!available || server.error.is_none(), || {
            format!("{server} is available, but has the error {:?}", server.error)
        })?;
    }
    Ok(())
}

/// Checks that the pool of a server is ready if the server is selectable, and that the pool is not
/// ready if the last error of the server is a failed connection or a shutdown.
///
/// # Errors
/// The violation.
pub fn check_pool(
    topology: &TopologyDescription,
    server: &ServerDescription,
    ready: bool,
) -> Result<(), String> {
    ensure(ready || !is_selectable(topology, server), || {
        format!("P3: {server} is selectable, but its pool is paused")
    })?;
    let failed = server.error.as_ref().is_some_and(|error| {
        matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout)
            || error.stage() != Stage::Operation && error.kind() == ErrorKind::Command
            || error.code() == Some(91)
    });
    ensure(!(ready && failed), || format!("P3: {server} failed, but its pool is ready"))
}

/// The wire version (MongoDB 6.0) from which election IDs are compared before set versions.
const ELECTION_FIRST: i32 = 17;

/// Checks that the newest known election is only replaced by a newer one (P2), unless the topology
/// was closed or has no servers left. Returns a description of the violation.
pub fn election(previous: &TopologyDescription, new: &TopologyDescription) -> Option<String> {
    if new.servers().is_empty() {
        return None;
    }
    let (old, max) = (previous.max_election(), new.max_election());
    let Some(primary) = new.primary() else {
        let regressed = max.election_id < old.election_id && max.set_version < old.set_version;
        return regressed.then(|| format!("max_election goes back from {old} to {max}"));
    };
    if previous.primary().is_some_and(|before| before == primary) {
        return (old != max)
            .then(|| format!("max_election changes from {old} to {max} without a new primary"));
    }
    if new.topology_type() == TopologyType::Single {
        return None;
    }
    if !is_newest(old, primary) {
        let own = primary.election;
        return Some(format!(
            "the primary {} has election {own}, but the newer {old} is known",
            primary.address
        ));
    }
    let expected = merged(old, primary);
    (max != expected).then(|| format!("max_election is {max}, expected {expected}"))
}

/// Returns whether `primary` was elected in the newest known election or a later one, by the rule
/// for its server version.
pub fn is_newest(max: ElectionTuple, primary: &ServerDescription) -> bool {
    let own = primary.election;
    let order = if primary.wire_versions.max >= ELECTION_FIRST {
        (own.election_id, own.set_version).cmp(&(max.election_id, max.set_version))
    } else if let (Some(_), Some(_), Some(_), Some(_)) =
        (own.election_id, own.set_version, max.election_id, max.set_version)
    {
        (own.set_version, own.election_id).cmp(&(max.set_version, max.election_id))
    } else {
        Ordering::Equal
    };
    order.is_ge()
}

/// Returns the newest known election after `primary` has been accepted.
fn merged(max: ElectionTuple, primary: &ServerDescription) -> ElectionTuple {
    let own = primary.election;
    if primary.wire_versions.max >= ELECTION_FIRST {
        return own;
    }
    let both = own.election_id.is_some() && own.set_version.is_some();
    ElectionTuple {
        election_id: if both { own.election_id } else { max.election_id },
        set_version: max.set_version.max(own.set_version),
    }
}

pub(crate) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}
