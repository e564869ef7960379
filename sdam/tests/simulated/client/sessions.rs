//! The sessions of a client: their ids, and `endSessions`.

use std::time::Duration;

use bson::{Document, doc};
use sdam::{
    Runtime,
    client::{Client, Command},
    runtime::Backend,
};
use sdam_sim::{Blueprint, MemberId, runtime::Sim};

use super::{World, encoded, replica_set};

/// A-18, I-76: every topology has an id of its own. A server runs only one write with the same
/// session and transaction number (M-47), so clients must not share sessions.
#[test]
fn clients_with_the_same_seed_have_sessions_of_their_own() {
    let sim = Sim::new(1, &replica_set());
    let clients = [1, 2].map(|id| {
        let runtime = sim.runtime();
        let backend = Backend::new(runtime.backend.clock, runtime.backend.transport, 7);
        let client = Client::start(&sim.uri(), Runtime::new(backend, runtime.spawner)).unwrap();
        let insert = encoded(&doc! { "insert": "c", "documents": [{ "_id": id }] });
        let insert = Command::write("test", insert.as_bytes());
        sim.block_on(client.run(&insert)).unwrap();
        client
    });
    let [first, second] = &clients;
    let count = encoded(&doc! { "count": "c" });
    let count = sim.block_on(first.run(&Command::read("test", count.as_bytes())));
    let count = Document::from_reader(count.unwrap().body()).unwrap();
    assert_eq!(count.get_i32("n").unwrap(), 2, "{count}");
    let id = |client: &Client| client.topology().id();
    assert_ne!(id(first), id(second));
}

/// Returns the size of each batch of sessions that a client ends when it is closed, after `writes`
/// writes and the failure of the members in `losses`.
fn ended(blueprint: &Blueprint, writes: i32, losses: &[u16]) -> Vec<usize> {
    let world = World::start(blueprint, "");
    (0..writes).for_each(|id| drop(world.insert(id).unwrap()));
    let used = world.log("insert").0.pop().and_then(|insert| insert.get("lsid").cloned());
    for member in losses {
        world.sim.kill(MemberId(*member)).unwrap();
    }
    world.sim.run_for(Duration::from_secs(30));
    world.run(world.client.close());
    let (started, names) = world.log("endSessions");
    assert_eq!(names.len(), 2 * started.len(), "{names:?}");
    assert!(!names.contains(&"CommandFailed"), "{names:?}");
    let sessions = started.iter().map(|end| {
        assert!(end.keys().eq(["endSessions", "$clusterTime", "$db"]), "{end}");
        let ended = end.get_array("endSessions").unwrap();
        assert_eq!(ended.first(), used.as_ref());
        ended.len()
    });
    sessions.collect()
}

#[test]
fn sessions_are_ended_on_the_primary_and_without_one_on_a_secondary() {
    // Closing ends sessions on the primary, or on a secondary if there is no primary (I-78).
    let set = replica_set();
    assert_eq!(ended(&set, 1, &[]), [1]);
    assert_eq!(ended(&set, 1, &[0, 1]), [1], "the third one is a secondary");
    assert!(ended(&set, 1, &[0, 1, 2]).is_empty(), "nobody is left");
    assert!(ended(&set, 0, &[]).is_empty(), "no session was used");
}

#[test]
fn every_acknowledged_command_has_a_session_and_those_of_a_cursor_have_the_same() {
    // Commands have an implicit session, unless they have one or are not acknowledged.
    let world = World::start(&replica_set(), "");
    let lsid = |command: Command<'_>, name: &str| {
        world.try_command(&command).unwrap();
        world.log(name).0.pop().unwrap().get("lsid").cloned()
    };
    let [ping, find, unacknowledged] = [
        doc! { "ping": 1 },
        doc! { "find": "c" },
        doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": { "w": 0 } },
    ]
    .map(|command| encoded(&command));
    let used = lsid(Command::new("admin", ping.as_bytes()), "ping");
    assert!(used.is_some());
    assert_eq!(lsid(Command::read("test", find.as_bytes()), "find"), used, "it is used again");
    assert_eq!(lsid(Command::write("test", unacknowledged.as_bytes()), "insert"), None);
    let find = Command::read("test", find.as_bytes());
    world.run(async {
        let mut cursor = world.client.pin(None).await.unwrap();
        cursor.run(&find).await.unwrap();
        // Others use other sessions meanwhile.
        world.client.run(&find).await.unwrap();
        cursor.run(&find).await.unwrap();
    });
    let ids: Vec<_> = world.log("find").0.iter().map(|find| find.get("lsid").cloned()).collect();
    assert_eq!(ids[0], ids[2]);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn commands_carry_the_newest_cluster_time_except_to_standalones() {
    // Each command has the newest cluster time that a reply contained.
    let standalone = Blueprint::standalone();
    for (blueprint, expected) in [(replica_set(), true), (standalone, false)] {
        let world = World::start(&blueprint, "");
        let ping = encoded(&doc! { "ping": 1 });
        let ping = Command::new("admin", ping.as_bytes());
        let reply = world.try_command(&ping).unwrap();
        let known = reply.get("$clusterTime").cloned();
        assert_eq!(known.is_some(), expected, "{reply}");
        world.try_command(&ping).unwrap();
        let (started, _) = world.log("ping");
        let sent = started.iter().map(|own| own.get("$clusterTime").cloned());
        assert_eq!(sent.collect::<Vec<_>>(), [None, known]);
    }
}
