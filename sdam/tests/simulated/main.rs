//! Tests topologies in virtual time, with simulated deployments and with scripted servers behind
//! the transport interface.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic fails the test")]

mod addresses;
mod authentication;
#[cfg(feature = "client")]
mod client;
mod config;
mod first_answer;
mod herds;
mod monitoring;
mod own_pool;
mod recordings;
mod selection;
mod single_threaded;
mod srv;
mod starts;

use std::panic::{AssertUnwindSafe, catch_unwind};

use sdam::{Event, ServerAddress, Snapshot};
use sdam_events::channel::EventStream;
use sdam_sim::{Blueprint, config::SetConfig, runtime::Sim};
use sdam_testkit::RecordingPools;

fn hosts() -> [ServerAddress; 3] {
    ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017))
}

/// Returns a replica set `rs` of [`hosts`].
fn replica_set() -> Blueprint {
    Blueprint::replica_set(SetConfig::new("rs", hosts()))
}

fn simulation(seed: u64) -> Sim {
    Sim::new(seed, &replica_set())
}

/// Returns the connection string with the user in `user_info`, which ends with `@` unless it is
/// empty.
fn uri_of_user(sim: &Sim, user_info: &str) -> String {
    sim.uri().replacen("//", &format!("//{user_info}"), 1)
}

/// Returns the primary, if all servers are available.
fn complete(snapshot: &Snapshot) -> Option<ServerAddress> {
    let description = snapshot.description();
    let mut servers = description.servers().iter();
    let known = servers.all(|server| server.server_type.is_available());
    let primary = description.primary().filter(|_| known)?;
    Some(primary.address.clone())
}

/// Asserts that `call` panics, and that the panic is the one that [`RecordingPools`] raises.
fn assert_pool_panics<T>(call: impl FnOnce() -> T) {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().unwrap();
    assert_eq!(panic.downcast_ref(), Some(&RecordingPools::PANIC));
}

/// Returns the events that have been delivered since the last call.
fn drain(events: &mut EventStream) -> Vec<Event> {
    std::iter::from_fn(|| events.try_next()).collect()
}
