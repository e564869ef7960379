//! Runs the prose tests for pools with the pool of `sdam-pool` and real servers.

use sdam::options::DriverInfo;
use sdam_pool::PooledConnection;

use super::*;
use crate::observer::Record;

/// A topology with pools, and its events.
struct Pooled {
    // Declared before the runtime, because fields are dropped in order of their declaration, and
    // the topology must be dropped first.
    topology: Topology<Pool>,
    record: Arc<Record>,
    _host: Host,
}

impl Pooled {
    fn start(uri: &str) -> Self {
        let (host, record) = (Host::start(), Arc::<Record>::default());
        let interest = Interest::SDAM.union(Interest::POOLS);
        let builder = Topology::builder(uri).unwrap().pools(Pools::new());
        let builder = builder.sink(record.sink(interest));
        Self { topology: builder.start(host.runtime.clone()).unwrap(), record, _host: host }
    }

    /// Returns the pool of the primary, or of the only server, once it is available.
    fn pool(&self) -> Pool {
        let server = block_on(self.topology.select(&Criteria::write())).unwrap();
        server.pool().clone()
    }

    /// Waits until the change whose event was just received is complete. The topology publishes the
    /// event and then calls the pool, both under one lock. This method takes the same lock.
    fn settle(&self) {
        let server = self.topology.snapshot().description().servers()[0].id;
        self.topology.reporter(server).generation(None).unwrap();
    }

    /// Runs a command on the primary; returns the reply.
    fn run(&self, command: Document) -> Document {
        run(&mut block_on(self.pool().check_out()).unwrap(), command)
    }

    /// Closes the topology and returns all events.
    fn finish(self) -> Vec<Event> {
        block_on(self.topology.close());
        self.record.events()
    }
}

/// Runs a command on the database `step-down`; returns the reply, even if it contains an error.
fn run(connection: &mut PooledConnection, mut command: Document) -> Document {
    command.insert("$db", "step-down");
    let command = command.to_vec().unwrap();
    let reply = block_on(connection.run_command(&command, Some(PATIENCE)));
    let body = match &reply {
        Ok(reply) => reply.body(),
        Err(error) => error.reply().unwrap(),
    };
    Document::from_reader(body).unwrap()
}

fn is_success(kind: &EventKind) -> bool {
    matches!(kind, EventKind::ServerHeartbeatSucceeded { .. })
}

fn is_ready(kind: &EventKind) -> bool {
    matches!(kind, EventKind::PoolReady { .. })
}

/// F-60, F-50, F-63, F-64, F-68; SDAM prose test "Connection Pool Management": a pool becomes ready
/// only after the first successful check, is cleared when a check fails, refuses check-outs, and
/// becomes ready again after the next success.
#[test]
#[ignore = "deep: real servers"]
fn pools_are_ready_after_a_successful_check_and_cleared_by_a_failed_one() {
    let Some(mongod) = standalone() else { return };
    // Before 5.0, the fail point does not affect handshakes, so the server becomes known again at
    // once.
    let hello = mongod.hello().unwrap();
    let stays_lost = hello.get_i32("maxWireVersion").unwrap() >= 13;
    let app = "SDAMPoolManagementTest";
    let options = format!("directConnection=true&appName={app}&heartbeatFrequencyMS=500");
    let client = Pooled::start(&format!("mongodb://{}/?{options}", mongod.host()));
    let record = &client.record;
    let wait_for = |what, mark, wanted: fn(&EventKind) -> bool| {
        let found = record.wait_for(what, mark, |kind| wanted(kind).then_some(()));
        found.1
    };
    let first = wait_for("the pool to be ready", 0, is_ready);
    assert_eq!(count(&record.events()[..first], is_success), 1);
    let pool = client.pool();
    drop(block_on(pool.check_out()).unwrap());
    let failing = FailCommand::new(["hello", "isMaster"]).error_code(1234);
    let failing = failing.app_name(app);
    let failing = if stays_lost { failing } else { failing.times(1) };
    let failing = mongod.fail_command(failing).unwrap();
    let failed = wait_for("a check to fail", first, |kind| {
        matches!(kind, EventKind::ServerHeartbeatFailed { .. })
    });
    let cleared = wait_for(
        "the pool to be cleared",
        failed,
        |kind| matches!(kind, EventKind::PoolCleared { clear, .. } if !clear.interrupt_in_use),
    );
    client.settle();
    if stays_lost {
        let refused = block_on(pool.check_out()).unwrap_err();
        let is_retryable = refused.is_retryable_pool();
        assert!(is_retryable, "{refused}");
    }
    failing.disable().unwrap();
    let again = wait_for("a check to succeed", cleared, is_success);
    assert_eq!(count(&record.events()[cleared..again], is_ready), 0);
    wait_for("the pool to be ready again", again, is_ready);
    client.settle();
    drop(block_on(pool.check_out()).unwrap());
    assert_eq!(pool.stats().opened, 2, "the first connection was stale");
    client.finish();
}

/// Returns the driver name and the application name of a connection, as reported by the server.
fn reported(mongod: &Mongod, connection: &PooledConnection) -> (String, String) {
    let command = doc! {
        "aggregate": 1, "cursor": {}, "pipeline": [
            { "$currentOp": { "allUsers": true, "idleConnections": true } },
            { "$match": { "connectionId": connection.id().server.unwrap() } },
        ],
    };
    let reply = mongod.run_command("admin", command).unwrap();
    let cursor = reply.get_document("cursor").unwrap();
    let operation = cursor.get_array("firstBatch").unwrap()[0].as_document();
    let metadata = operation.unwrap().get_document("clientMetadata").unwrap();
    let name = |part| metadata.get_document(part).unwrap().get_str("name");
    let [driver, application] =
        ["driver", "application"].map(|part| name(part).unwrap().to_owned());
    (driver, application)
}

/// O-20, O-27, O-28; Handshake prose test "Test that the driver updates metadata": after a library
/// was appended, new connections send the extended metadata, and open connections are unchanged.
#[test]
#[ignore = "deep: real servers"]
fn the_server_reports_appended_metadata_of_new_connections_only() {
    let Some(mongod) = standalone() else { return };
    let options = "directConnection=true&appName=metadata";
    let client = Pooled::start(&format!("mongodb://{}/?{options}", mongod.host()));
    let pool = client.pool();
    let mut first = block_on(pool.check_out()).unwrap();
    let library = DriverInfo::new("wrapper").with_version("7");
    assert!(client.topology.append_metadata(library).unwrap());
    let second = block_on(pool.check_out()).unwrap();
    let ping = run(&mut first, doc! { "ping": 1 });
    assert_eq!(ping.get("ok"), Some(&1.0.into()));
    let names = |connection| reported(&mongod, connection);
    let expected = |driver: &str| (driver.to_owned(), "metadata".to_owned());
    assert_eq!(names(&first), expected("sdam"));
    assert_eq!(names(&second), expected("sdam|wrapper"));
    drop((first, second));
    client.finish();
}

fn insert(document: Document) -> Document {
    let majority = doc! { "w": "majority" };
    doc! { "insert": "step-down", "documents": [document], "writeConcern": majority }
}

/// Drops the test's collection if it exists, and creates it.
fn create_collection(client: &Pooled) {
    for name in ["drop", "create"] {
        client.run(doc! { name: "step-down", "writeConcern": { "w": "majority" } });
    }
}

/// Returns the number of cleared pools and the number of created connections.
fn clears_and_connections(events: &[Event]) -> (usize, usize) {
    let clears = count(events, |kind| matches!(kind, EventKind::PoolCleared { .. }));
    let is_created = |kind: &EventKind| matches!(kind, EventKind::ConnectionCreated { .. });
    (clears, count(events, is_created))
}

/// Returns the ids of the documents in a batch.
fn ids(reply: &Document, batch: &str) -> Vec<i32> {
    let cursor = reply.get_document("cursor");
    let cursor = cursor.unwrap_or_else(|_| panic!("{reply}"));
    let batch = cursor.get_array(batch).unwrap().iter();
    batch.map(|one| one.as_document().unwrap().get_i32("_id").unwrap()).collect()
}

/// A cursor survives a step-down (I-36; "getMore Iteration").
#[test]
#[ignore = "deep: real servers"]
fn step_down_1_a_cursor_goes_on_over_its_connection_after_a_step_down() {
    let Some(set) = replica_set() else { return };
    let client = Pooled::start(&set.uri());
    create_collection(&client);
    for id in 0..5 {
        client.run(insert(doc! { "_id": id }));
    }
    let pool = client.pool();
    let mut connection = block_on(pool.check_out()).unwrap();
    let find = doc! { "find": "step-down", "batchSize": 2, "sort": { "_id": 1 } };
    let reply = run(&mut connection, find);
    assert_eq!(ids(&reply, "firstBatch"), [0, 1]);
    let cursor = reply.get_document("cursor").unwrap();
    let cursor = cursor.get_i64("id").unwrap();
    let secondary = set.member(set.secondaries()[0]);
    let unfreeze = doc! { "replSetFreeze": 0 };
    secondary.run_command("admin", unfreeze).unwrap();
    let old = set.members().find(|member| member.host() == *pool.address().as_str());
    let step_down = doc! { "replSetStepDown": 30, "force": true };
    old.unwrap().run_command("admin", step_down).unwrap();
    let more = doc! { "getMore": cursor, "collection": "step-down", "batchSize": 2 };
    assert_eq!(ids(&run(&mut connection, more), "nextBatch"), [2, 3]);
    drop(connection);
    assert_eq!(clears_and_connections(&client.finish()), (0, 1));
}

/// Only shutdown errors clear the pool (I-34, I-36): "Not Primary - Keep Connection Pool",
/// "Shutdown in progress - Reset Connection Pool", "Interrupted at shutdown - Reset Connection
/// Pool".
#[test]
#[ignore = "deep: real servers"]
fn step_down_2_to_4_only_errors_of_a_shutdown_clear_the_pool() {
    let started = ReplicaSet::start(version(), &[MemberSpec::new()]);
    let Some(set) = or_skip(started).unwrap() else {
        return;
    };
    // The next streamed reply makes the server known again.
    let uri = format!("{}&heartbeatFrequencyMS=500", set.uri());
    for (code, clears) in [(10107, 0), (91, 1), (11600, 1)] {
        let client = Pooled::start(&uri);
        create_collection(&client);
        let fail = FailCommand::new(["insert"]).times(1);
        let failing = set.member(0).fail_command(fail.error_code(code)).unwrap();
        let failed = client.run(insert(doc! { "test": 1 }));
        assert_eq!(failed.get_i32("code").unwrap(), code, "{failed}");
        let inserted = client.run(insert(doc! { "test": 1 }));
        assert_eq!(inserted.get_i32("n").unwrap(), 1, "{inserted}");
        failing.disable().unwrap();
        let events = client.finish();
        assert_eq!(clears_and_connections(&events), (clears, 1 + clears), "{code}");
    }
}
