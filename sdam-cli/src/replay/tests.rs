use serde_json::json;

use super::*;
use crate::testing::capture;

const URI: &str = r#"{"uri":"mongodb://a,b/?replicaSet=rs"}"#;
const PRIMARY: &str = r#"{"address":"a:27017","reply":{"ok":1,"isWritablePrimary":true,"setName":"rs","setVersion":{"$numberLong":"3"},"electionId":{"$oid":"000000000000000000000001"},"hosts":["a:27017","b:27017"],"maxWireVersion":21,"topologyVersion":{"processId":{"$oid":"000000000000000000000002"},"counter":{"$numberLong":"5"}}}}"#;
const NOT_PRIMARY: &str = r#"{"address":"a:27017","applicationError":{"address":"a:27017","when":"afterHandshakeCompletes","maxWireVersion":21,"type":"command","response":{"ok":0,"code":10107,"errmsg":"not primary"}}}"#;

/// Runs the program on the lines `steps`; returns its output, its remarks and its exit code.
fn replay(steps: &[&str]) -> (Vec<Value>, Vec<String>, Exit) {
    let (output, remarks, exit) = replay_bytes(steps.join("\n").as_bytes());
    let snapshots = output.lines().map(|line| serde_json::from_str(line).unwrap());
    (snapshots.collect(), remarks.lines().map(str::to_owned).collect(), exit)
}

fn replay_bytes(text: &[u8]) -> (String, String, Exit) {
    capture(|console| lines("in.jsonl", text, console.output, console.remarks).unwrap())
}

/// Returns the type of the topology, and the address and type of each server.
fn types(snapshot: &Value) -> String {
    let servers = snapshot["servers"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let servers = servers.map(|of| format!(" {}={}", text(&of["address"]), text(&of["type"])));
    text(&snapshot["topologyType"]) + &servers.collect::<String>()
}

#[test]
fn every_line_prints_the_resulting_topology() {
    let lines = [
        URI,
        PRIMARY,
        r#"{"address":"b","error":"timeout"}"#,
        NOT_PRIMARY,
        r#"{"address":"b:27017","reply":{"ok":1,"secondary":true,"setName":"rs","hosts":["a","b"],"primary":"a:27017","maxWireVersion":21}}"#,
    ];
    let (snapshots, remarks, exit) = replay(&lines);
    assert_eq!(
        snapshots.iter().map(types).collect::<Vec<_>>(),
        [
            "ReplicaSetNoPrimary a:27017=Unknown b:27017=Unknown",
            "ReplicaSetWithPrimary a:27017=RSPrimary b:27017=Unknown",
            "ReplicaSetWithPrimary a:27017=RSPrimary b:27017=Unknown",
            "ReplicaSetNoPrimary a:27017=Unknown b:27017=Unknown",
            "ReplicaSetNoPrimary a:27017=PossiblePrimary b:27017=RSSecondary",
        ]
    );
    assert_eq!(remarks, Vec::<String>::new());
    assert_eq!(exit, Exit::SUCCESS);
    let b = &snapshots[2]["servers"][1];
    assert_eq!(b["error"], "timeout at hello: replayed");
    assert_eq!(b.get("rttMs"), None);
    assert_eq!(snapshots[1]["maxSetVersion"], 3);
}

#[test]
fn invalid_lines_are_reported_and_the_others_are_processed() {
    let check = |line: &str, complaint: &str| {
        let (snapshots, remarks, exit) = replay(&[URI, "", line, PRIMARY]);
        assert_eq!(snapshots.len(), 2, "{line}");
        assert_eq!(
            types(&snapshots[1]),
            "ReplicaSetWithPrimary a:27017=RSPrimary b:27017=Unknown",
            "{line}"
        );
        assert_eq!(remarks, [format!("error: in.jsonl:3: {complaint}")], "{line}");
        assert_eq!(exit, Exit::BAD_LINES, "{line}");
    };
    let shape = "it must have a uri, or an address and one of reply, error and applicationError";
    check(
        "{",
        "it is not JSON, EOF while parsing an object at column 1; it needs an object, see \
         `sdam help replay`",
    );
    check("[]", "invalid length 0, expected an object");
    check("{}", shape);
    check(r#"{"address":"a"}"#, shape);
    check(r#"{"address":"a","reply":{},"error":"network"}"#, shape);
    check(URI, "the topology is already started");
    check(
        r#"{"address":"a","eror":"network"}"#,
        "eror: unknown field `eror`, expected one of `uri`, `address`, `reply`, `error`, \
         `applicationError`",
    );
    check(
        r#"{"address":7,"error":"network"}"#,
        "address: invalid type: integer `7`, expected a string",
    );
    check(
        r#"{"address":"a","error":"dns"}"#,
        "error: unknown variant `dns`, expected one of `command`, `network`, `timeout`",
    );
    check(r#"{"address":"a","reply":[]}"#, "reply: invalid type: sequence, expected a Bson");
    let error = |error: &str| format!(r#"{{"address":"a","applicationError":{error}}}"#);
    check(
        &error(r#"{"type":"command","when":"afterHandshakeCompletes","maxWireVersion":9}"#),
        "applicationError: an error of type command has no response",
    );
    check(
        &error(r#"{"type":"network","when":"after","maxWireVersion":9}"#),
        "applicationError: when: unknown variant `after`, expected `beforeHandshakeCompletes` or \
         `afterHandshakeCompletes`",
    );
    check(
        &error(r#"{"type":"network","when":"afterHandshakeCompletes"}"#),
        "applicationError: missing field `maxWireVersion`",
    );
    check(
        &error(
            r#"{"address":"b","type":"timeout","when":"afterHandshakeCompletes","maxWireVersion":9}"#,
        ),
        "it names two servers, a:27017 and b:27017",
    );
}

#[test]
fn a_line_that_is_not_utf_8_is_an_invalid_line() {
    let mut bytes = format!("{URI}\n").into_bytes();
    bytes.extend(b"\xff\xfe\n");
    bytes.extend(PRIMARY.as_bytes());
    let (output, remarks, exit) = replay_bytes(&bytes);
    assert_eq!((output.lines().count(), exit), (2, Exit::BAD_LINES));
    assert!(remarks.starts_with("error: in.jsonl:2: it is not JSON"), "{remarks}");
}

#[test]
fn the_first_line_must_have_a_connection_string() {
    let check = |uri: &str, complaint: &str| {
        let line = json!({ "uri": uri }).to_string();
        let (snapshots, remarks, exit) = replay(&[&line, PRIMARY, URI]);
        assert_eq!(snapshots.len(), 1, "{uri}");
        let [first, second] = &*remarks else {
            panic!("{remarks:?}");
        };
        assert!(first.starts_with("error: in.jsonl:1: uri: "), "{first}");
        assert!(first.contains(complaint), "{first}");
        assert_eq!(second, r#"error: in.jsonl:2: the first line must be {"uri":"mongodb://..."}"#);
        assert_eq!(exit, Exit::BAD_LINES);
    };
    check("http://a", "mongodb://");
    check("mongodb://a,b/?directConnection=true", "directConnection");
    check(
        "mongodb+srv://a.example.com/",
        "list the hosts of the SRV record in a mongodb:// string",
    );
}

#[test]
fn lines_without_effect_are_reported_with_the_reason() {
    let check = |line: &str, remark: &str| {
        let (snapshots, remarks, exit) = replay(&[URI, PRIMARY, line]);
        assert_eq!(snapshots.len(), 3, "{line}");
        assert_eq!(snapshots[1], snapshots[2], "{line}");
        assert_eq!(remarks, [format!("note: in.jsonl:3: {remark}")], "{line}");
        assert_eq!(exit, Exit::SUCCESS);
    };
    check(r#"{"address":"x","error":"network"}"#, "ignored: x:27017 is not part of the topology");
    check(
        r#"{"address":"a","reply":{"ok":1,"setName":"rs","secondary":true,"hosts":["a:27017"],"topologyVersion":{"processId":{"$oid":"000000000000000000000002"},"counter":{"$numberLong":"4"}}}}"#,
        "ignored: its topologyVersion is older than the known one",
    );
    let error = |error: &str| format!(r#"{{"address":"a","applicationError":{error}}}"#);
    check(
        &error(
            r#"{"type":"command","when":"afterHandshakeCompletes","maxWireVersion":21,"response":{"ok":1,"writeErrors":[{"code":10107}]}}"#,
        ),
        "ignored: it does not affect the state of the server",
    );
    check(
        &error(r#"{"type":"network","when":"beforeHandshakeCompletes","maxWireVersion":0}"#),
        "ignored: it does not affect the state of the server",
    );
    let stale =
        r#"{"type":"network","when":"afterHandshakeCompletes","maxWireVersion":21,"generation":0}"#;
    let (_, remarks, _) = replay(&[URI, PRIMARY, &error(stale), PRIMARY, &error(stale)]);
    assert_eq!(
        remarks,
        [
            "note: in.jsonl:5: ignored: its generation or topologyVersion is older than the known one"
        ]
    );
}

#[test]
fn warnings_of_the_connection_string_are_reported() {
    let (snapshots, remarks, exit) = replay(&[r#"{"uri":"mongodb://a/?colour=red"}"#]);
    assert_eq!(snapshots.len(), 1);
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].starts_with("note: in.jsonl:1: `colour`"), "{}", remarks[0]);
    assert_eq!(exit, Exit::SUCCESS);
}

#[test]
fn a_recording_instead_of_lines_is_refused_with_the_remedy() {
    let bytes = crate::recording::tests::failover();
    let (output, remarks, exit) = replay_bytes(&bytes);
    assert_eq!((&*output, exit), ("", Exit::CONFIGURATION));
    let remedy = "use `sdam replay --trace in.jsonl`";
    assert_eq!(remarks, format!("error: in.jsonl: it is a recording: {remedy}\n"));
}
