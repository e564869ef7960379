//! The commands that a client sends, their events and their sessions.

use std::collections::BTreeSet;

use bson::{Binary, spec::BinarySubtype};
use futures::future;
use sdam::{ReadMode, ReadPreference, SelectionError, events::CommandInfo};

use super::*;

#[test]
fn the_read_preference_is_sent_as_the_topology_and_the_kind_of_command_demand() {
    // Reads inherit the read preference of the connection string, generic commands do not (L-4,
    // L-7).
    let find = encoded(&doc! { "find": "c" });
    let read = Command::read("test", find.as_bytes());
    let generic = Command::new("test", find.as_bytes());
    let check = |blueprint: &Blueprint, options: &str, command: &Command<'_>, sent: bool| {
        let world = World::start(blueprint, options);
        world.try_command(command).unwrap();
        let (started, _) = world.log("find");
        assert_eq!(started[0].get_str("$db").unwrap(), "test");
        let preference = started[0].get_document("$readPreference").ok();
        let expected = doc! { "mode": "secondaryPreferred" };
        assert_eq!(preference, sent.then_some(&expected), "{options} {command:?}");
    };
    let (set, option) = (replica_set(), "readPreference=secondaryPreferred");
    check(&set, "", &read, false);
    check(&set, option, &read, true);
    check(&set, option, &generic, false);
    let preference = ReadPreference::new(ReadMode::SecondaryPreferred);
    let criteria = Criteria::read(preference).unwrap();
    check(&set, "", &generic.with_criteria(criteria), true);
    let standalone = Blueprint::standalone();
    check(&standalone, option, &read, false);
}

#[test]
fn the_commands_of_a_pinned_connection_have_its_read_preference() {
    // A secondary answers commands without a read preference with an error (L-70).
    let world = World::start(&replica_set(), "");
    let ping = encoded(&doc! { "ping": 1 });
    let find = encoded(&doc! { "find": "c" });
    let secondary = ReadPreference::new(ReadMode::Secondary);
    let criteria = Criteria::read(secondary).unwrap();
    let mut pinned = world.run(world.client.pin(criteria)).unwrap();
    let ping = Command::new("admin", ping.as_bytes());
    let find = Command::read("test", find.as_bytes());
    for (name, command) in [("ping", ping), ("find", find)] {
        world.run(pinned.run(&command)).unwrap();
        let (started, _) = world.log(name);
        let expected = doc! { "mode": "secondary" };
        assert_eq!(started[0].get_document("$readPreference").unwrap(), &expected);
    }
}

#[test]
fn a_connection_that_was_closed_while_it_was_idle_is_not_used() {
    let ping = encoded(&doc! { "ping": 1 });
    for blueprint in [replica_set(), Blueprint::load_balanced(1)] {
        let world = World::start(&blueprint, "");
        for round in 0..2 {
            world.try_command(&Command::new("admin", ping.as_bytes())).unwrap();
            let (_, names) = world.log("ping");
            assert_eq!(names, ["CommandStarted", "CommandSucceeded"], "{round}");
            world.sim.run_for(Duration::from_secs(30));
            let network = world.sim.network();
            let reset = |member| network.reset_idle(MemberId(member), Duration::from_secs(20));
            assert_eq!((0..3).map(reset).sum::<usize>(), 1);
        }
    }
}

#[test]
fn errors_of_writes_are_errors_unless_the_caller_reads_the_reply() {
    // A duplicate key is an error, although the reply has `ok: 1`.
    let world = World::start(&replica_set(), "");
    let documents = [1, 1, 2].map(|id| doc! { "_id": id });
    let insert = doc! { "insert": "c", "documents": documents.to_vec(), "ordered": false };
    let insert = encoded(&insert);
    let insert = Command::write("test", insert.as_bytes());
    let error = world.try_command(&insert).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Write, Some(11000)), "{error}");
    let indexes: Vec<_> = error.write_errors().iter().map(|error| error.index).collect();
    assert_eq!(indexes, [1]);
    let text = error.to_string();
    assert!(text.starts_with("`insert` failed on "), "{text}");
    assert!(text.contains("(11000): write 1: "), "{text}");
    let reply = Document::from_reader(error.reply().unwrap()).unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 2, "{reply}");
    let raw = world.run(world.client.run_raw(&insert)).unwrap();
    assert_eq!(raw.write_errors().len(), 3);
    world.run(async {
        let mut pinned = world.client.pin(None).await.unwrap();
        assert_eq!(pinned.run(&insert).await.unwrap_err().kind(), ErrorKind::Write);
        assert_eq!(pinned.run_raw(&insert).await.unwrap().write_errors().len(), 3);
    });
    let data = doc! { "failCommands": ["insert"], "writeConcernError": { "code": 64 } };
    world.fail(doc! { "times": 1 }, data);
    let error = world.insert(3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Write, "{error}");
    assert!(error.write_errors().is_empty() && error.write_concern_error().is_some(), "{error}");
}

#[test]
fn a_command_that_is_too_long_is_refused_and_harms_no_one() {
    // The command is not sent, because the server would close the connection (O-36).
    let world = World::start(&replica_set(), "timeoutMS=60000");
    world.insert(1).unwrap();
    let (before, now) = (world.client.topology().snapshot().description().clone(), world.sim.now());
    for size in [16_800_000, 49_000_000] {
        let blob = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; size] };
        let insert = encoded(&doc! { "insert": "c", "documents": [{ "blob": blob }] });
        let insert = Command::write("test", insert.as_bytes());
        let error = world.try_command(&insert).unwrap_err();
        assert_eq!((error.kind(), error.retries()), (ErrorKind::Invalid, 0), "{error}");
        let text = error.to_string();
        let prefix = size.to_string()[..3].to_owned();
        assert!(text.contains(&prefix) && text.contains(" 16793600 "), "{text}");
    }
    assert_eq!(world.sim.now(), now, "nothing was sent");
    assert_eq!(world.client.topology().snapshot().description().clone(), before);
    world.insert(2).unwrap();
    assert_eq!(world.client.topology().snapshot().description().clone(), before);
}

fn info(kind: &EventKind) -> Option<&CommandInfo> {
    match kind {
        EventKind::CommandStarted { command, .. }
        | EventKind::CommandSucceeded { command, .. }
        | EventKind::CommandFailed { command, .. } => Some(command),
        _ => None,
    }
}

#[test]
fn selection_and_command_carry_the_number_of_the_operation() {
    let world = World::start(&replica_set(), "");
    let ping = encoded(&doc! { "ping": 1 });
    for _ in 0..3 {
        world.try_command(&Command::new("admin", ping.as_bytes())).unwrap();
    }
    let events: Vec<_> = world.events().into_iter().map(|event| event.kind).collect();
    let infos: Vec<_> = events.iter().filter_map(info).collect();
    assert_eq!(infos.len(), 6);
    assert_eq!(infos[0], infos[1]);
    assert_eq!(infos[2], infos[3]);
    let requests: BTreeSet<i32> = infos.iter().map(|info| info.request_id).collect();
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert_ne!(infos[0].operation_id, infos[2].operation_id);
    assert_eq!((&*infos[0].name, &*infos[0].database), ("ping", "admin"));
    let selections = events.iter().filter_map(|kind| match kind {
        EventKind::ServerSelectionSucceeded { selection, .. } => Some(selection),
        _ => None,
    });
    let selections: Vec<_> = selections.collect();
    assert_eq!(selections[0].operation.as_deref(), Some("ping"));
    assert_eq!(selections[0].operation_id, infos[0].operation_id);
    assert_eq!(selections[1].operation_id, infos[2].operation_id);
}

#[test]
fn a_dropped_command_publishes_its_failure() {
    let world = World::start(&replica_set(), "");
    let ping = encoded(&doc! { "ping": 1 });
    let ping = Command::new("admin", ping.as_bytes());
    world.try_command(&ping).unwrap();
    for member in 0..3 {
        world.sim.network().blackhole(MemberId(member), true);
    }
    world.run(async {
        let clock = world.sim.runtime().backend.clock;
        let soon = clock.sleep_until(world.sim.now() + Duration::from_millis(10));
        let hanging = pin!(world.client.run(&ping));
        assert!(matches!(future::select(hanging, soon).await, future::Either::Right(_)));
    });
    let failures = world.events().into_iter().filter_map(|event| match event.kind {
        EventKind::CommandFailed { failure, .. } => Some(failure.to_string()),
        _ => None,
    });
    assert_eq!(
        failures.collect::<Vec<_>>(),
        ["cancelled at operation: the caller has dropped the operation"]
    );
}

#[test]
fn what_cannot_be_sent_is_an_error_without_a_command() {
    let world = World::start(&replica_set(), "serverSelectionTimeoutMS=10");
    let malformed = world.try_command(&Command::new("admin", &[1, 2, 3])).unwrap_err();
    assert_eq!((malformed.kind(), malformed.command()), (ErrorKind::Invalid, None));
    let owned = encoded(&doc! { "ping": 1, "$db": "admin" });
    let owned = world.try_command(&Command::new("admin", owned.as_bytes())).unwrap_err();
    assert_eq!(owned.kind(), ErrorKind::Invalid, "{owned}");
    assert!(owned.to_string().contains("`$db`, which the client adds"), "{owned}");
    assert!(world.events().is_empty(), "it was refused before a server was selected");
    for member in 0..3 {
        world.sim.kill(MemberId(member)).unwrap();
    }
    world.sim.run_for(Duration::from_secs(30));
    let ping = encoded(&doc! { "ping": 1 });
    let error = world.try_command(&Command::new("admin", ping.as_bytes())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SelectionTimeout, "{error}");
    assert!(error.source_as::<SelectionError>().unwrap().is_timeout());
    assert!(error.is_timeout() && error.address().is_none());
    assert_eq!(world.client.close().now_or_never(), None, "closing waits for tasks");
}

#[test]
fn a_command_ends_before_its_topology_is_closed_or_counts_as_dropped() {
    // Closing waits up to 2 s for the command to end. If its last event is still missing then, this
    // event counts as dropped (J-26).
    let check = |block: u64, expected: &[&str], dropped: u64| {
        let world = World::start(&replica_set(), "");
        let fail = doc! {
            "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": block as i64,
        };
        world.fail(doc! { "times": 1 }, fail);
        let ping = encoded(&doc! { "ping": 1 });
        let ping = Command::new("admin", ping.as_bytes());
        let topology = world.client.topology().clone();
        world.run(async {
            let closing = async {
                topology.close().await;
                assert_eq!(topology.events().dropped(), dropped, "{block}");
            };
            let (reply, ()) = future::join(world.client.run(&ping), closing).await;
            reply.unwrap();
        });
        assert_eq!(world.log("ping").1, expected, "{block}");
    };
    check(1000, &["CommandStarted", "CommandSucceeded"], 0);
    check(5000, &["CommandStarted"], 1);
}

/// Creates a command of one kind from a document.
type Make = for<'c> fn(&'c [u8]) -> Command<'c>;

#[test]
fn concerns_of_the_connection_string_are_sent_with_commands_that_take_them() {
    // Read and write concerns are added only to commands that support them and do not already have
    // them (B-42).
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }] };
    let find = doc! { "find": "c" };
    let with = |command: &Document, more: Document| {
        let mut command = command.clone();
        command.extend(more);
        command
    };
    let generic: Make = |command| Command::new("test", command);
    let read: Make = |command| Command::read("test", command);
    let write: Make = |command| Command::write("test", command);
    let single: Make = |command| Command::write("test", command).without_retry();
    let check = |options: &str, make: Make, command: &Document, expected: Document| {
        let world = World::start(&replica_set(), options);
        world.try_command(&make(encoded(command).as_bytes())).unwrap();
        let (started, _) = world.log(command.keys().next().unwrap());
        let sent = started[0].iter().filter(|(key, _)| key.ends_with("Concern"));
        let sent = sent.map(|(key, value)| (key.clone(), value.clone()));
        assert_eq!(sent.collect::<Document>(), expected, "{options} {command}");
    };
    let concerned = |concern: Document| doc! { "writeConcern": concern };
    let all = "w=2&journal=true&wTimeoutMS=50&readConcernLevel=majority";
    let concern = doc! { "w": 2_i64, "j": true, "wtimeout": 50_i64 };
    check(all, write, &insert, concerned(concern));
    check("w=majority", write, &insert, concerned(doc! { "w": "majority" }));
    check("journal=false", write, &insert, concerned(doc! { "j": false }));
    check("", write, &insert, doc! {});
    check("w=1", single, &insert, concerned(doc! { "w": 1_i64 }));
    check(all, read, &find, doc! { "readConcern": { "level": "majority" } });
    check("", read, &find, doc! {});
    // Not every read accepts a read concern.
    check(all, read, &doc! { "listCollections": 1 }, doc! {});
    // `timeoutMS` replaces `wTimeoutMS` (B-43).
    check("timeoutMS=9000&wTimeoutMS=50", write, &insert, doc! {});
    let own = with(&insert, concerned(doc! { "w": 1 }));
    check(all, write, &own, concerned(doc! { "w": 1 }));
    let own = with(&find, doc! { "readConcern": {} });
    check(all, read, &own, doc! { "readConcern": {} });
    let transaction = doc! { "autocommit": false };
    check(all, read, &with(&find, transaction.clone()), doc! {});
    check(all, write, &with(&insert, transaction), doc! {});
    check(all, generic, &insert, doc! {});
    check(all, generic, &find, doc! {});
}

#[test]
fn a_client_refuses_or_warns_about_what_it_does_not_honour() {
    // A client warns about options that it ignores, and refuses `w=0` (B-43, B-44).
    let sim = Sim::new(1, &replica_set());
    let start = |options: &str| {
        let uri = format!("{}&{options}", sim.uri());
        Client::start(&uri, sim.runtime())
    };
    let error = start("w=0").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`w` is `0`: this client waits for the reply to every write; leave the option out, or set \
         it to at least 1"
    );
    let warnings = |options: &str| {
        let client = start(options).unwrap();
        let warnings = client.topology().warnings().iter();
        warnings.map(ToString::to_string).collect::<Vec<_>>()
    };
    let compression = "this client does not compress messages; the option is ignored";
    assert_eq!(
        warnings("compressors=zlib,snappy&zlibCompressionLevel=3"),
        [
            format!("`compressors` is `zlib,snappy`: {compression}"),
            format!("`zlibCompressionLevel` is `3`: {compression}"),
        ]
    );
    let limits = "socketTimeoutMS=1&waitQueueTimeoutMS=2&wTimeoutMS=3";
    let replaced = "`timeoutMS` replaces it; the option is ignored";
    assert_eq!(
        warnings(&format!("timeoutMS=0&{limits}")),
        [
            format!("`socketTimeoutMS` is `1`: {replaced}"),
            format!("`waitQueueTimeoutMS` is `2`: {replaced}"),
            format!("`wTimeoutMS` is `3`: {replaced}"),
        ]
    );
    assert!(warnings(limits).is_empty());
    assert!(warnings("w=majority&readConcernLevel=local").is_empty());
}

/// A-18, I-76: every topology has its own id. A server runs only one write with the same session
/// and transaction number (M-47), so clients must not share sessions.
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
    assert!(ended(&set, 1, &[0, 1, 2]).is_empty(), "no member is left");
    assert!(ended(&set, 0, &[]).is_empty(), "no session was used");
}

#[test]
fn every_acknowledged_command_has_a_session_and_those_of_a_cursor_have_the_same() {
    // Commands get an implicit session, unless they already have a session or are not acknowledged
    //
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
        // Meanwhile, other commands use other sessions.
        world.client.run(&find).await.unwrap();
        cursor.run(&find).await.unwrap();
    });
    let ids: Vec<_> = world.log("find").0.iter().map(|find| find.get("lsid").cloned()).collect();
    assert_eq!(ids[0], ids[2]);
    assert_ne!(ids[0], ids[1]);
}
