//! Replays tests that the topology machine of `sdam` wrote on the driver's topology, without
//! sockets and monitors.
//!
//! The argument is a file with one test in each line, in the format of the official SDAM tests,
//! whose outcomes are complete descriptions. Standard output has one JSON object in each line: for
//! each phase whose outcome is different, the number of its test, the descriptions before and after
//! it, and what happens in it; at last the number of tests. A phase that follows a different one is
//! not judged.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    bson::{Document, RawDocumentBuf, oid::ObjectId},
    client::options::{ClientOptions, ServerAddress},
    cmap::{PoolGeneration, RawCommandResponse, conn::ConnectionGeneration},
    error::{Error, ErrorKind},
    hello::HelloReply,
    sdam::{HandshakePhase, ServerDescription, Topology, TopologyVersion},
};

/// Replays the file that the argument names.
pub fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let file = std::env::args().nth(1).expect("the argument is a file of tests");
    let lines = BufReader::new(File::open(file).expect("the file can be read")).lines();
    let mut output = BufWriter::new(std::io::stdout().lock());
    let (mut replayed, mut judged) = (0, 0);
    let runtime = runtime.expect("a runtime can be built");
    for line in lines {
        let test = serde_json::from_str(&line.expect("the file is text")).expect("a test is JSON");
        let (found, last_judged) = runtime.block_on(replay(test));
        for mut difference in found {
            difference["path"] = replayed.into();
            writeln!(output, "{difference}").expect("the output can be written");
        }
        replayed += 1;
        judged += u64::from(last_judged);
    }
    let summary = json!({ "replayed": replayed, "judged": judged });
    writeln!(output, "{summary}").expect("the output can be written");
}

/// Returns the phases whose outcomes are different, and whether the last phase is judged.
async fn replay(mut test: Value) -> (Vec<Value>, bool) {
    let options = ClientOptions::parse(test["uri"].as_str().unwrap_or_default()).await;
    let topology = options.and_then(Topology::new).expect("the connection string is valid");
    // The topology is open once its first message is acknowledged.
    topology.updater().fill_pool().await;
    let mut before = outcome(&topology);
    let (mut judged, mut last_judged) = (true, true);
    let mut found = Vec::new();
    let phases = test["phases"].as_array_mut().into_iter().flatten();
    for phase in phases.filter_map(Value::as_object_mut) {
        let expected = without_hints(phase.remove("outcome").expect("a phase has an outcome"));
        for response in phase.get("responses").map_or(&[][..], array) {
            check(&topology, address(&response[0]), &response[1]).await;
        }
        for error in phase.get("applicationErrors").map_or(&[][..], array) {
            fail(&topology, error).await;
        }
        let actual = outcome(&topology);
        last_judged = judged;
        judged = actual == expected;
        if last_judged && !judged {
            found.push(json!({
                "before": before, "step": phase, "expected": expected, "actual": actual,
            }));
        }
        before = actual;
    }
    (found, last_judged)
}

/// Processes the outcome of a check as a monitor does.
async fn check(topology: &Topology, address: ServerAddress, reply: &Value) {
    let updater = topology.updater();
    let reply = match reply.as_object() {
        Some(fields) if !fields.is_empty() => parsed(address.clone(), reply),
        _ => Err(broken(std::io::ErrorKind::BrokenPipe)),
    };
    match reply {
        Ok(reply) => {
            let rtt = Duration::from_millis(1);
            let description = ServerDescription::new_from_hello_reply(address, reply, rtt);
            updater.update(description).await
        }
        Err(error) => updater.handle_monitor_error(address, error).await,
    };
}

/// Processes an error on a pooled connection as a pool does.
async fn fail(topology: &Topology, reported: &Value) {
    let address = address(&reported["address"]);
    let error = match reported["type"].as_str() {
        Some("network") => broken(std::io::ErrorKind::UnexpectedEof),
        Some("timeout") => broken(std::io::ErrorKind::TimedOut),
        _ => parsed(address.clone(), &reported["response"]).expect_err("the response is an error"),
    };
    let generation = reported["generation"].as_u64().unwrap_or_default() as u32;
    let (error, phase) = if reported["when"] == "beforeHandshakeCompletes" {
        let generation = PoolGeneration::Normal(generation);
        (error.with_backpressure_labels(), HandshakePhase::PreHello { generation })
    } else {
        let max_wire_version = reported["maxWireVersion"].as_i64().unwrap_or_default() as i32;
        let generation = ConnectionGeneration::Normal(generation);
        (error, HandshakePhase::AfterCompletion { generation, max_wire_version })
    };
    topology.updater().handle_application_error(address, error, phase).await;
}

fn outcome(topology: &Topology) -> Value {
    let state = topology.latest();
    let description = &state.description;
    let servers = state.servers();
    let servers = description.servers.iter().map(|(address, own)| {
        let generation = match servers.get(address).map(|server| server.pool.generation()) {
            Some(PoolGeneration::Normal(generation)) => generation,
            _ => 0,
        };
        (address.to_string(), server_outcome(own, generation))
    });
    json!({
        "topologyType": description.topology_type.to_string(),
        "setName": description.set_name,
        "maxSetVersion": description.max_set_version,
        "maxElectionId": description.max_election_id.map(oid),
        "logicalSessionTimeoutMinutes": description.logical_session_timeout.map(minutes),
        "compatible": description.compatibility_error.is_none(),
        "servers": servers.collect::<serde_json::Map<_, _>>(),
    })
}

fn server_outcome(own: &ServerDescription, generation: u32) -> Value {
    let reply = own.reply.as_ref().ok().and_then(Option::as_ref);
    let reply = reply.map(|reply| &reply.command_response);
    json!({
        "type": own.server_type.to_string(),
        "setName": reply.and_then(|reply| reply.set_name.clone()),
        "setVersion": reply.and_then(|reply| reply.set_version),
        "electionId": reply.and_then(|reply| reply.election_id).map(oid),
        "topologyVersion": own.topology_version().map(version),
        "logicalSessionTimeoutMinutes":
            reply.and_then(|reply| reply.logical_session_timeout_minutes),
        "minWireVersion": reply.and_then(|reply| reply.min_wire_version),
        "maxWireVersion": reply.and_then(|reply| reply.max_wire_version),
        "pool": { "generation": generation },
    })
}

/// Parses a reply as the driver does when it arrives.
fn parsed(address: ServerAddress, reply: &Value) -> Result<HelloReply, Error> {
    let mut reply: Document = serde_json::from_value(reply.clone()).expect("a reply is a document");
    // Every server sends these, and the driver requires them.
    reply.insert("maxBsonObjectSize", 16 * 1024 * 1024);
    reply.insert("maxMessageSizeBytes", 48_000_000);
    let raw = RawDocumentBuf::try_from(&reply).expect("a document can be encoded");
    RawCommandResponse::new_raw(address, raw).into_hello_reply()
}

fn broken(kind: std::io::ErrorKind) -> Error {
    ErrorKind::Io(Arc::new(kind.into())).into()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn address(value: &Value) -> ServerAddress {
    let text = value.as_str().unwrap_or_default();
    ServerAddress::parse(text).expect("the address is valid")
}

/// Replaces the type that the driver does not have.
fn without_hints(mut outcome: Value) -> Value {
    for server in outcome["servers"].as_object_mut().into_iter().flatten() {
        if server.1["type"] == "PossiblePrimary" {
            server.1["type"] = "Unknown".into();
        }
    }
    outcome
}

fn version(own: TopologyVersion) -> Value {
    json!({ "processId": oid(own.process_id), "counter": own.counter })
}

fn oid(id: ObjectId) -> Value {
    json!({ "$oid": id.to_hex() })
}

fn minutes(duration: Duration) -> u64 {
    duration.as_secs() / 60
}
