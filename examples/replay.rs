//! Shows how a client interprets replies from servers, without opening connections.
//!
//! `cargo run -p sdam-examples --example replay FILE URI` prints the topology after each line of
//! the file. Each line is a JSON object with the result of one check. `URI` is the connection
//! string of the client. To read a recording instead, use `sdam report` or `sdam::events::replay`.
//!
//! ```json
//! {"address": "a:27017", "reply": {"ok": 1, "isWritablePrimary": true, "maxWireVersion": 21}}
//! {"address": "a:27017", "error": "connection reset"}
//! ```

use std::{env, error::Error, fs, sync::Arc, time::Duration};

use bson::Document;
use sdam::{ErrorKind, Options, ServerAddress, error::Stage, runtime::Instant};
use sdam_core::{
    deployment::{Deployment, Input, Output, Timer},
    hello::{Handshake, HelloReply},
    monitor::MonitorConfig,
    rng::Rng,
};
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Returns the topology after each line with the result of a check.
fn checks(text: &str, uri: &str) -> Result<Vec<String>> {
    let options = Options::parse(uri)?;
    let config = MonitorConfig::new(&options, Arc::new(Handshake::new([])), false);
    let mut client = Deployment::new(options.clone(), Arc::new(config), Rng::new(1));
    // There are no pools and no events, so most outputs are dropped, here and below.
    drop(client.handle(Instant::EPOCH, Input::Open));
    let mut shown = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        check(&mut client, number, line).map_err(|error| format!("line {number}: {error}"))?;
        shown.push(format!("{number}: {}", client.description()));
    }
    Ok(shown)
}

fn check(client: &mut Deployment, number: u64, line: &str) -> Result<()> {
    let line: Value = serde_json::from_str(line)?;
    let address = ServerAddress::parse(line["address"].as_str().ok_or("it has no address")?)?;
    let server = client.description().server(&address).ok_or("it names no known server")?.id;
    // Only the order of the lines matters, so the time between them is arbitrary.
    let now = Instant::EPOCH + Duration::from_secs(number);
    // `wanted` means that a selection is waiting, so the check begins at once.
    let (timer, wanted) = (Timer::Server(server), true);
    let mut outputs = client.handle(now, Input::Due { timer, wanted });
    while let Some((conn, output)) = outputs.into_iter().find_map(|output| match output {
        Output::Connect { conn, .. } | Output::Send { conn, .. } => Some((conn, output)),
        _ => None,
    }) {
        let input = match (line["error"].as_str(), output) {
            (Some(message), _) => {
                let error = sdam::Error::new(ErrorKind::Network, Stage::Hello, message);
                Input::Failed { conn, at: now, error }
            }
            (None, Output::Connect { .. }) => Input::Connected { conn },
            (None, _) => {
                let reply: Document = serde_json::from_value(line["reply"].clone())?;
                let reply = HelloReply::parse(reply.to_vec()?);
                Input::Reply { conn, sent: now, at: now, reply, more_to_come: false }
            }
        };
        outputs = client.handle(now, input);
    }
    Ok(())
}

fn main() -> Result<()> {
    let (path, uri) = (env::args().nth(1), env::args().nth(2));
    let text = fs::read_to_string(path.ok_or("name a file")?)?;
    let uri = uri.ok_or("write the connection string of the client after the file")?;
    for topology in checks(&text, &uri)? {
        println!("{topology}");
    }
    Ok(())
}

#[test]
fn the_topology_follows_the_replies_and_errors() -> Result<()> {
    let lines = r#"{"address":"a:27017","reply":{"ok":1,"setName":"rs","hosts":["a","b"],"isWritablePrimary":true,"maxWireVersion":21}}
{"address":"b:27017","reply":{"ok":1,"setName":"rs","hosts":["a","b"],"secondary":true,"maxWireVersion":21}}
{"address":"a:27017","error":"connection reset"}"#;
    let shown = checks(lines, "mongodb://a/?replicaSet=rs")?;
    let types = ["ReplicaSetWithPrimary", "ReplicaSetWithPrimary", "ReplicaSetNoPrimary"];
    for (topology, expected) in shown.iter().zip(types) {
        assert!(topology.contains(expected), "{topology}");
    }
    let error = checks(r#"{"address":"c:27017"}"#, "mongodb://a/?replicaSet=rs").unwrap_err();
    assert_eq!(error.to_string(), "line 1: it names no known server");
    Ok(())
}
