//! The requests of the comparison.

use bson::{Bson, Document, doc, oid::ObjectId};

use crate::conversation::{AWAIT, Framing};

/// The kind of server to which a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Primary,
    Secondary,
    Standalone,
}

/// One step of a conversation.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A request and its reply.
    Request(Framing, Document),
    /// A further reply in a stream.
    NextReply,
}

/// Steps on a new connection.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

fn case(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Case {
    Case {
        name,
        steps: steps.into_iter().collect(),
    }
}

/// Builds a request to database `admin`.
fn ask(body: Document) -> Step {
    Step::Request(Framing::Msg, admin(body))
}

fn admin(mut body: Document) -> Document {
    body.insert("$db", "admin");
    body
}

fn query(body: Document) -> Step {
    Step::Request(Framing::Query("admin.$cmd"), body)
}

fn exhaust(body: Document) -> Step {
    Step::Request(Framing::Exhaust, admin(body))
}

/// Returns all cases. `hello` is an earlier reply of the server, with or without topology version.
pub(crate) fn cases(kinds: ServerKind, hello: &Document) -> Vec<Case> {
    let mut cases = greetings();
    cases.extend(metadata());
    cases.extend(waiting(hello));
    cases.extend(malformed(hello));
    cases.extend(framing());
    cases.extend(commands(kinds));
    cases.extend(read_preferences());
    cases.extend(fail_points());
    cases
}

fn greetings() -> Vec<Case> {
    vec![
        case("hello", [ask(doc! { "hello": 1 })]),
        case("isMaster", [ask(doc! { "isMaster": 1 })]),
        case("ismaster", [ask(doc! { "ismaster": 1 })]),
        case("hello helloOk", [ask(doc! { "hello": 1, "helloOk": true })]),
        case(
            "isMaster helloOk",
            [ask(doc! { "isMaster": 1, "helloOk": true })],
        ),
        case(
            "hello helloOk false",
            [ask(doc! { "hello": 1, "helloOk": false })],
        ),
        case(
            "hello apiVersion 1",
            [ask(doc! { "hello": 1, "apiVersion": "1" })],
        ),
        case(
            "hello apiVersion 2",
            [ask(doc! { "hello": 1, "apiVersion": "2" })],
        ),
        case(
            "hello compression",
            [ask(doc! { "hello": 1, "compression": ["zlib"] })],
        ),
        case(
            "hello no compression",
            [ask(doc! { "hello": 1, "compression": [] })],
        ),
    ]
}

fn metadata() -> Vec<Case> {
    let client = |name: &str| {
        doc! {
            "application": { "name": name },
            "driver": { "name": "sdam", "version": "1" },
            "os": { "type": "Linux" },
        }
    };
    let hello = |client: Document| ask(doc! { "hello": 1, "client": client });
    let oversize = doc! {
        "driver": { "name": "x".repeat(1100), "version": "1" },
        "os": { "type": "Linux" },
    };
    vec![
        case("metadata", [hello(client("app"))]),
        case(
            "metadata twice",
            [hello(client("app")), hello(client("app"))],
        ),
        case(
            "metadata late",
            [ask(doc! { "hello": 1 }), hello(client("app"))],
        ),
        case("metadata oversize", [hello(oversize)]),
        case(
            "metadata application name",
            [hello(client(&"x".repeat(129)))],
        ),
        case(
            "metadata no driver",
            [hello(doc! { "os": { "type": "Linux" } })],
        ),
        case(
            "metadata no os",
            [hello(doc! { "driver": { "name": "sdam", "version": "1" } })],
        ),
        case("metadata empty", [hello(doc! {})]),
    ]
}

fn waiting(hello: &Document) -> Vec<Case> {
    let known = known(hello);
    let (process, counter) = parts(&known);
    let other = ObjectId::from_bytes([9; 12]);
    let max = AWAIT.as_millis() as i64;
    let legacy = doc! { "isMaster": 1, "topologyVersion": &known, "maxAwaitTimeMS": max };
    vec![
        case("await", [ask(with(known.clone(), max))]),
        case("await legacy", [ask(legacy.clone())]),
        case("await legacy OP_QUERY", [query(legacy)]),
        case("await no time", [ask(with(known.clone(), 0))]),
        case(
            "await other process",
            [ask(with(version(other, counter), max))],
        ),
        case(
            "await other process later",
            [ask(with(version(other, counter + 9), max))],
        ),
        case(
            "await older counter",
            [ask(with(version(process, counter - 1), max))],
        ),
        case(
            "await newer counter",
            [ask(with(version(process, counter + 1), max))],
        ),
        case(
            "await negative counter",
            [ask(with(version(process, -1), max))],
        ),
        case(
            "await negative counter other process",
            [ask(with(version(other, -1), max))],
        ),
        case("await negative time", [ask(with(known.clone(), -1))]),
        case(
            "await negative time other process",
            [ask(with(version(other, 0), -1))],
        ),
        case("await negative both", [ask(with(version(process, -1), -1))]),
    ]
}

/// Returns the cases with malformed awaitable hellos.
fn malformed(hello: &Document) -> Vec<Case> {
    let known = known(hello);
    let (process, counter) = parts(&known);
    let max = AWAIT.as_millis() as i64;
    vec![
        case(
            "await version only",
            [ask(doc! { "hello": 1, "topologyVersion": &known })],
        ),
        case(
            "await time only",
            [ask(doc! { "hello": 1, "maxAwaitTimeMS": max })],
        ),
        case(
            "await negative time only",
            [ask(doc! { "hello": 1, "maxAwaitTimeMS": -1 })],
        ),
        case(
            "await no counter",
            [ask(with(doc! { "processId": process }, max))],
        ),
        case(
            "await no process",
            [ask(with(doc! { "counter": counter }, max))],
        ),
        case(
            "await text",
            [ask(
                doc! { "hello": 1, "topologyVersion": "x", "maxAwaitTimeMS": max },
            )],
        ),
        case(
            "await int32 counter",
            [ask(with(doc! { "processId": process, "counter": 1 }, max))],
        ),
        case(
            "await null",
            [ask(
                doc! { "hello": 1, "topologyVersion": Bson::Null, "maxAwaitTimeMS": max },
            )],
        ),
        case("exhaust without await", [exhaust(doc! { "hello": 1 })]),
        case(
            "exhaust legacy without await",
            [exhaust(doc! { "isMaster": 1 })],
        ),
        case(
            "exhaust version only",
            [exhaust(doc! { "hello": 1, "topologyVersion": &known })],
        ),
        case("exhaust of what has none", [exhaust(doc! { "ping": 1 })]),
    ]
}

/// Returns the topology version of `hello`, or an arbitrary one, which servers without streaming
/// ignore.
fn known(hello: &Document) -> Document {
    let known = hello.get_document("topologyVersion").cloned();
    known.unwrap_or_else(|_| version(ObjectId::from_bytes([7; 12]), 6))
}

fn parts(known: &Document) -> (ObjectId, i64) {
    let process = known.get_object_id("processId").unwrap();
    (process, known.get_i64("counter").unwrap())
}

fn with(version: Document, max: i64) -> Document {
    doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": max }
}

/// Returns the cases for servers that support streaming.
pub(crate) fn streams(hello: &Document) -> Vec<Case> {
    let known = hello.get_document("topologyVersion").unwrap();
    let max = AWAIT.as_millis() as i64;
    let other = version(ObjectId::from_bytes([9; 12]), 3);
    let modern = doc! { "hello": 1, "topologyVersion": known, "maxAwaitTimeMS": max };
    let legacy = doc! { "isMaster": 1, "topologyVersion": known, "maxAwaitTimeMS": max };
    let stale = doc! { "hello": 1, "topologyVersion": other, "maxAwaitTimeMS": max };
    vec![
        case("stream", [exhaust(modern), Step::NextReply]),
        case("stream legacy", [exhaust(legacy), Step::NextReply]),
        case("stream other process", [exhaust(stale), Step::NextReply]),
    ]
}

fn version(process: ObjectId, counter: i64) -> Document {
    doc! { "processId": process, "counter": counter }
}

fn framing() -> Vec<Case> {
    vec![
        case("OP_QUERY isMaster", [query(doc! { "isMaster": 1 })]),
        case("OP_QUERY ismaster", [query(doc! { "ismaster": 1 })]),
        case("OP_QUERY hello", [query(doc! { "hello": 1 })]),
        case(
            "OP_QUERY helloOk",
            [query(doc! { "isMaster": 1, "helloOk": true })],
        ),
        case(
            "OP_QUERY wrapped",
            [query(doc! { "$query": { "isMaster": 1 } })],
        ),
        case("OP_QUERY ping", [query(doc! { "ping": 1 })]),
        case("OP_QUERY unknown command", [query(doc! { "explode": 1 })]),
        case(
            "no database",
            [Step::Request(Framing::Msg, doc! { "ping": 1 })],
        ),
    ]
}

fn commands(kinds: ServerKind) -> Vec<Case> {
    let insert = || doc! { "insert": "things", "documents": [{ "a": 1 }], "$db": "realism" };
    let find = || doc! { "find": "things", "filter": { "a": 7 }, "$db": "realism" };
    let plain = |body: Document| Step::Request(Framing::Msg, body);
    let session = || {
        let uuid = bson::Binary {
            subtype: bson::spec::BinarySubtype::Uuid,
            bytes: vec![5; 16],
        };
        doc! { "lsid": { "id": uuid }, "txnNumber": 1_i64 }
    };
    let mut retryable = insert();
    retryable.extend(session());
    let mut preferring = find();
    preferring.insert("$readPreference", doc! { "mode": "secondaryPreferred" });
    let greet = || ask(doc! { "isMaster": 1, "helloOk": true });
    let mut cases = vec![
        case("ping", [ask(doc! { "ping": 1 })]),
        case(
            "ping apiVersion 2",
            [ask(doc! { "ping": 1, "apiVersion": "2" })],
        ),
        case("unknown command", [ask(doc! { "explode": 1 })]),
        case("endSessions", [ask(doc! { "endSessions": [] })]),
        case("find", [plain(find())]),
        case("find helloOk", [greet(), plain(find())]),
        case("find secondaryPreferred", [plain(preferring)]),
        case("insert", [plain(insert())]),
        case("insert helloOk", [greet(), plain(insert())]),
    ];
    if kinds != ServerKind::Standalone {
        cases.push(case("insert retryable", [plain(retryable)]));
    }
    if kinds == ServerKind::Primary {
        let data = doc! {
            "failCommands": ["insert"],
            "writeConcernError": { "code": 91, "errmsg": "waiting failed" },
        };
        let on = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        cases.push(case(
            "insert without its concern",
            [ask(on), plain(insert()), ask(off)],
        ));
    }
    if kinds != ServerKind::Primary {
        cases.push(case("step down", [ask(doc! { "replSetStepDown": 60 })]));
    }
    cases
}

/// Returns the cases with valid and invalid read preferences.
fn read_preferences() -> Vec<Case> {
    let prefers = |name, preference: Bson| {
        let find = doc! { "find": "none", "$db": "realism", "$readPreference": preference };
        case(name, [Step::Request(Framing::Msg, find)])
    };
    let stale = |name, mode: &str, seconds: Bson| {
        prefers(
            name,
            doc! { "mode": mode, "maxStalenessSeconds": seconds }.into(),
        )
    };
    let tagged =
        |name, mode: &str, tags: Bson| prefers(name, doc! { "mode": mode, "tags": tags }.into());
    vec![
        stale("preference stale", "nearest", 90.into()),
        stale("preference stale int64", "nearest", 90_i64.into()),
        stale("preference stale double", "nearest", 90.0.into()),
        stale("preference stale fraction", "nearest", 90.5.into()),
        stale("preference stale text", "nearest", "90".into()),
        stale("preference stale little", "nearest", 89.into()),
        stale("preference stale zero", "nearest", 0.into()),
        stale("preference stale negative", "nearest", (-1).into()),
        stale("preference stale huge", "nearest", i64::MAX.into()),
        stale("preference stale primary", "primary", 120.into()),
        stale("preference stale little primary", "primary", 1.into()),
        stale("preference stale zero primary", "primary", 0.into()),
        tagged(
            "preference tags",
            "nearest",
            Bson::Array(vec![doc! { "dc": "ny" }.into(), doc! {}.into()]),
        ),
        tagged("preference tags none", "nearest", Bson::Array(vec![])),
        tagged("preference tags text", "nearest", "ny".into()),
        tagged(
            "preference tags number",
            "nearest",
            Bson::Array(vec![doc! { "dc": 1 }.into()]),
        ),
        tagged(
            "preference tags list",
            "nearest",
            Bson::Array(vec!["ny".into()]),
        ),
        tagged(
            "preference tags primary",
            "primary",
            Bson::Array(vec![doc! { "dc": "ny" }.into()]),
        ),
        tagged(
            "preference tags empty primary",
            "primary",
            Bson::Array(vec![doc! {}.into()]),
        ),
        tagged(
            "preference tags none primary",
            "primary",
            Bson::Array(vec![]),
        ),
        prefers("preference mode unknown", doc! { "mode": "any" }.into()),
        prefers("preference mode number", doc! { "mode": 1 }.into()),
        prefers("preference mode none", doc! {}.into()),
        prefers(
            "preference unknown field",
            doc! { "mode": "nearest", "surprise": 1 }.into(),
        ),
        prefers("preference text", "nearest".into()),
    ]
}

fn fail_points() -> Vec<Case> {
    let on = |data: Document| {
        ask(doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data })
    };
    let off = || ask(doc! { "configureFailPoint": "failCommand", "mode": "off" });
    let ping = || ask(doc! { "ping": 1 });
    let error = |name, code: i32| {
        let data = doc! { "failCommands": ["ping"], "errorCode": code };
        case(name, [on(data), ping(), ping(), off()])
    };
    vec![
        error("fail 10107", 10107),
        error("fail 13435", 13435),
        error("fail 11602", 11602),
        error("fail 13436", 13436),
        error("fail 189", 189),
        error("fail 11600", 11600),
        error("fail 91", 91),
        error("fail 10058", 10058),
        error("fail 6", 6),
        error("fail 89", 89),
        error("fail 18", 18),
        error("fail 12345", 12345),
        case(
            "fail hello",
            [
                on(doc! { "failCommands": ["hello", "isMaster"], "errorCode": 91 }),
                ask(doc! { "hello": 1 }),
                ask(doc! { "hello": 1 }),
                off(),
            ],
        ),
        case(
            "fail labels",
            [
                on(doc! { "failCommands": ["ping"], "errorCode": 189, "errorLabels": ["Foo"] }),
                ping(),
                off(),
            ],
        ),
        case(
            "fail write concern of what takes none",
            [
                on(doc! {
                    "failCommands": ["ping"],
                    "writeConcernError": { "code": 64, "errmsg": "waiting timed out" },
                }),
                ping(),
                off(),
            ],
        ),
        case(
            "fail slowly",
            [
                on(doc! {
                    "failCommands": ["ping"],
                    "blockConnection": true,
                    "blockTimeMS": AWAIT.as_millis() as i64,
                }),
                ping(),
                off(),
            ],
        ),
        case(
            "fail by closing",
            [
                on(doc! { "failCommands": ["ping"], "closeConnection": true }),
                ping(),
            ],
        ),
        case(
            "fail point unknown",
            [ask(doc! { "configureFailPoint": "explode", "mode": "off" })],
        ),
    ]
}
