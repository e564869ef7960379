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

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::{Document, RawDocumentBuf, doc};
use futures::{FutureExt, StreamExt};
use sdam::{
    Clock, ConfigError, Connection, Criteria, Error, Event, EventKind, Interest, Options,
    PoolHandle, Runtime, ScanTopology, ServerAddress, ServerType, Snapshot, Spawner, Topology,
    TopologyBuilder, TopologyType, Transport, async_trait,
    events::EventName,
    options::AddressTable,
    runtime::{Backend, Instant},
    snapshot::ServerId,
};
use sdam_events::channel::{EventStream, unbounded};
use sdam_pool::{Pool, Pools};
use sdam_sim::{
    Blueprint, MemberId, User,
    action::{FailCommand, Mode},
    config::SetConfig,
    runtime::{Direction, DnsFault, Sim, Verdict},
};
use sdam_testkit::{HeldTasks, ManualClock, RecordingPools, Server, Servers};

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

/// A command that a server received.
#[derive(Clone, Debug)]
struct Sent {
    at: Instant,
    member: MemberId,
    command: Document,
}

impl Sent {
    fn is_handshake(&self) -> bool {
        self.command.contains_key("client")
    }

    fn is_awaitable(&self) -> bool {
        self.command.contains_key("topologyVersion")
    }
}

/// Records the commands that servers receive from now on.
fn record(sim: &Sim) -> Arc<Mutex<Vec<Sent>>> {
    let sent = Arc::<Mutex<Vec<Sent>>>::default();
    let recorded = Arc::clone(&sent);
    sim.network().add_rule(move |frame| {
        if frame.direction == Direction::ToServer {
            // The command follows the header, the flags, and the kind of the only section.
            let command = Document::from_reader(&frame.bytes[21..]).unwrap();
            let (at, member) = (frame.at, frame.member);
            recorded.lock().unwrap().push(Sent { at, member, command });
        }
        Verdict::Pass
    });
    sent
}

/// Returns a fail point for these commands.
fn fail_command(commands: &[&str], mode: Mode) -> FailCommand {
    let mut fail = FailCommand::default();
    fail.commands = commands.iter().map(ToString::to_string).collect();
    fail.mode = mode;
    fail
}

/// Returns the events that have been delivered since the last call.
fn drain(events: &mut EventStream) -> Vec<Event> {
    std::iter::from_fn(|| events.try_next()).collect()
}
