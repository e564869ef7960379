//! The invariants of effects, events, pools and states.

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::{
    event::EventKind,
    ids::{Generation, ServerId},
    machine::{Effect, Effects, TopologyMachine},
    server::{ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};

use crate::election;

/// The effect of a step on the published description.
pub(crate) struct Change<'w> {
    pub(crate) before: &'w Arc<TopologyDescription>,
    pub(crate) after: &'w Arc<TopologyDescription>,
    /// The server that the step is about.
    pub(crate) about: Option<ServerId>,
}

/// The state of a server's pool and monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) generation: Generation,
    pub(crate) ready: bool,
    /// True if the monitor has round-trip times.
    pub(crate) measured: bool,
    /// True if the monitor considers its server known.
    pub(crate) known: bool,
}

/// Returns whether operations may be sent to the server.
pub fn is_selectable(topology: &TopologyDescription, server: &ServerDescription) -> bool {
    server.server_type.is_data_bearing()
        || topology.topology_type() == TopologyType::Single && server.server_type.is_available()
}

/// Checks P1: at most one primary, and the topology type agrees. Returns the violation.
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

/// Returns whether `effects` clear the server's pool.
pub(crate) fn clears(effects: &Effects, of: ServerId) -> bool {
    effects
        .iter()
        .any(|effect| matches!(effect, Effect::PoolClear { server, .. } if *server == of))
}

/// Checks that effects come in the order that [`Effects`] documents.
pub(crate) fn order(effects: &Effects, opening: bool) -> Result<(), String> {
    let rank = |effect: &Effect| match effect {
        Effect::OpenServer { .. } => 1,
        Effect::PoolReady { .. } => 2,
        Effect::Publish(_) => 3,
        Effect::Emit(EventKind::TopologyOpening) if opening => 0,
        Effect::Emit(EventKind::TopologyClosed) => 9,
        Effect::Emit(_) => 4,
        Effect::ServerKnown { .. } | Effect::ResetRtt { .. } => 5,
        Effect::PoolClear { .. } => 6,
        Effect::CloseServer { .. } => 7,
        Effect::CancelCheck { .. } | Effect::RequestCheck { .. } => 8,
    };
    let sorted = effects.iter().map(rank).is_sorted();
    ensure(sorted, || {
        format!("the effects are not in the documented order: {effects:?}")
    })
}

/// Checks that a change is published exactly once, and nothing else is.
pub(crate) fn publication(change: &Change<'_>, effects: &Effects) -> Result<(), String> {
    let mut published = effects.iter().filter_map(|effect| match effect {
        Effect::Publish(description) => Some(description),
        _ => None,
    });
    let first = published.next();
    ensure(published.next().is_none(), || {
        "the description is published twice".into()
    })?;
    match first {
        Some(description) => ensure(Arc::ptr_eq(description, change.after), || {
            format!(
                "{description} is published, but the description is {}",
                change.after
            )
        }),
        None => ensure(change.before == change.after, || {
            format!(
                "the description changed and was not published: {}",
                change.after
            )
        }),
    }
}

/// Checks that events report every change of the topology, without gaps and repetitions.
pub(crate) fn events(
    change: &Change<'_>,
    reported: &mut Arc<TopologyDescription>,
    effects: &Effects,
) -> Result<(), String> {
    let mut servers: Vec<ServerId> = change.before.servers().iter().map(|own| own.id).collect();
    for effect in effects {
        let Effect::Emit(event) = effect else {
            continue;
        };
        match event {
            EventKind::TopologyDescriptionChanged { previous, new } => {
                ensure(previous == reported, || {
                    format!("the topology was {reported}, but the event changes it from {previous}")
                })?;
                if let Some(reason) =
                    election::violation(previous, new).filter(|_| !new.servers().is_empty())
                {
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
        format!(
            "the topology is {}, but the events report {reported}",
            change.after
        )
    })
}

/// Applies the effects to the pools and checks each command. Returns the pools that are closed.
pub(crate) fn pools(
    change: &Change<'_>,
    pools: &mut BTreeMap<ServerId, Pool>,
    effects: &Effects,
) -> Result<Vec<ServerId>, String> {
    let mut closed = Vec::new();
    for effect in effects {
        match effect {
            Effect::OpenServer { server, .. } => {
                let before = pools.insert(*server, Pool::default());
                ensure(before.is_none(), || {
                    format!("a second pool is created for server {server}")
                })?;
            }
            Effect::PoolReady { server } => {
                let pool = own(pools, *server)?;
                ensure(!pool.ready, || {
                    format!("the pool of server {server} becomes ready while it is ready")
                })?;
                pool.ready = true;
                let known = change.after.server_by_id(*server);
                ensure(
                    known.is_some_and(|known| is_selectable(change.after, known)),
                    || {
                        format!(
                            "F-60: the pool of {known:?}, which is not selectable, becomes ready"
                        )
                    },
                )?;
                ensure(change.about == Some(*server), || {
                    format!("the pool of server {server} becomes ready in a step of another server")
                })?;
            }
            Effect::PoolClear { server, clear } => {
                let pool = own(pools, *server)?;
                ensure(clear.generation == pool.generation.next(), || {
                    format!(
                        "the pool of server {server} goes from generation {} to {}",
                        pool.generation, clear.generation
                    )
                })?;
                ensure(clear.was_paused != pool.ready, || {
                    format!("F-63: server {server}: {clear:?} does not match {pool:?}")
                })?;
                (pool.generation, pool.ready) = (clear.generation, false);
                let known = change.after.server_by_id(*server);
                ensure(
                    known.is_some_and(|known| !known.server_type.is_available()),
                    || {
                        format!(
                            "F-64: the pool of {known:?} is cleared before the server is Unknown"
                        )
                    },
                )?;
            }
            Effect::CloseServer { server } => {
                own(pools, *server)?;
                pools.remove(server);
                closed.push(*server);
            }
            Effect::ServerKnown { server, known } => own(pools, *server)?.known = *known,
            Effect::ResetRtt { server } => own(pools, *server)?.measured = false,
            Effect::RequestCheck { server } | Effect::CancelCheck { server, .. } => {
                let pool = own(pools, *server)?;
                if let Effect::CancelCheck { generation, .. } = effect {
                    ensure(*generation == pool.generation, || {
                        format!("F-72: {effect:?} does not match {pool:?}")
                    })?;
                }
            }
            Effect::Publish(_) | Effect::Emit(_) => {}
        }
    }
    Ok(closed)
}

fn own(pools: &mut BTreeMap<ServerId, Pool>, server: ServerId) -> Result<&mut Pool, String> {
    pools
        .get_mut(&server)
        .ok_or_else(|| format!("server {server} has no pool"))
}

/// Checks the invariants of every state.
pub(crate) fn state(
    machine: &TopologyMachine,
    pools: &BTreeMap<ServerId, Pool>,
) -> Result<(), String> {
    let topology = machine.description();
    if let Some(wrong) = one_primary(topology) {
        return Err(format!("P1: {wrong}"));
    }
    ensure(pools.len() == topology.servers().len(), || {
        format!("there are pools {pools:?} for {topology}")
    })?;
    for server in topology.servers() {
        let Some(pool) = pools.get(&server.id) else {
            return Err(format!("{server} has no pool"));
        };
        let generation = machine.generation(server.id, None);
        ensure(generation == Some(pool.generation), || {
            format!("the machine has generation {generation:?}, but the pool is {pool:?}")
        })?;
        ensure(pool.ready || !is_selectable(topology, server), || {
            format!("P3: {server} is selectable, but its pool is paused")
        })?;
        ensure(!pool.ready || may_be_ready(server), || {
            format!("P3: {server} failed, but its pool is ready")
        })?;
        let available = server.server_type.is_available();
        ensure(available == pool.known, || {
            format!(
                "F-51: {server} does not match its monitor, for which known is {}",
                pool.known
            )
        })?;
        ensure(available == server.rtt.is_some(), || {
            format!("G-3: {server} has {:?}", server.rtt)
        })?;
        ensure(!available || server.error.is_none(), || {
            format!(
                "{server} is available, but has the error {:?}",
                server.error
            )
        })?;
    }
    Ok(())
}

/// Returns whether connections to the server may be opened: its last error must not be a failed
/// connection or a shutdown.
fn may_be_ready(server: &ServerDescription) -> bool {
    use sdam_core::error::{ErrorKind, Stage};
    server.error.as_ref().is_none_or(|error| {
        let failed = matches!(error.kind, ErrorKind::Network | ErrorKind::Timeout)
            || error.stage != Stage::Operation && error.kind == ErrorKind::Command;
        !failed && error.code != Some(91)
    })
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}
