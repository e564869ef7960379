//! The requests that are sent to simulated and real servers to compare their replies.

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
    /// Another reply in a stream.
    NextReply,
}

/// A named sequence of steps on a new connection.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

fn case(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Case {
    Case { name, steps: steps.into_iter().collect() }
}

/// Builds a request to the database `admin`.
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

/// Returns all cases. `hello` is an earlier reply from the server, which may or may not contain a
/// topology version.
pub(crate) fn cases(kinds: ServerKind, hello: &Document) -> Vec<Case> {
    let mut cases = greetings();
    cases.extend(metadata());
    cases.extend(waiting(hello));
    cases.extend(malformed(hello));
    cases.extend(framing());
    cases.extend(commands(kinds));
    cases.extend(read_preferences());
    cases.extend(arguments());
    cases.extend(fail_points());
    // Older servers do not know the name of the application, or learn it later.
    if hello.get_i32("maxWireVersion").unwrap() >= 13 {
        cases.extend(application_names());
    }
    cases
}

/// Returns a case that has one step for each of the named documents.
fn each<const N: usize>(
    step: fn(Document) -> Step,
    named: [(&'static str, Document); N],
) -> Vec<Case> {
    let cases = named.into_iter().map(|(name, body)| case(name, [step(body)]));
    cases.collect()
}

fn greetings() -> Vec<Case> {
    // Replies to hello and legacy hello have different fields, among them the topology version, and
    // other spellings are other commands (M-2, M-40, M-41).
    let named = [
        ("Hello", doc! { "Hello": 1 }),
        ("ISMASTER", doc! { "ISMASTER": 1 }),
        ("IsMaster", doc! { "IsMaster": 1 }),
        ("hello", doc! { "hello": 1 }),
        ("isMaster", doc! { "isMaster": 1 }),
        ("ismaster", doc! { "ismaster": 1 }),
        ("hello helloOk", doc! { "hello": 1, "helloOk": true }),
        ("isMaster helloOk", doc! { "isMaster": 1, "helloOk": true }),
        ("hello helloOk false", doc! { "hello": 1, "helloOk": false }),
        ("hello apiVersion 1", doc! { "hello": 1, "apiVersion": "1" }),
        ("hello apiVersion 2", doc! { "hello": 1, "apiVersion": "2" }),
        ("hello compression", doc! { "hello": 1, "compression": ["zlib"] }),
        ("hello no compression", doc! { "hello": 1, "compression": [] }),
    ];
    each(ask, named)
}

fn metadata() -> Vec<Case> {
    // Servers refuse invalid client metadata (M-44).
    let hello = |client: Document| ask(doc! { "hello": 1, "client": client });
    let driver = |name: &str| doc! { "name": name, "version": "1" };
    let os = || doc! { "type": "Linux" };
    let client = |name: &str| {
        let application = doc! { "name": name };
        doc! { "application": application, "driver": driver("sdam"), "os": os() }
    };
    let oversize = doc! { "driver": driver(&"x".repeat(1100)), "os": os() };
    let long = client(&"x".repeat(129));
    let twice = [hello(client("app")), hello(client("app"))];
    let late = [ask(doc! { "hello": 1 }), hello(client("app"))];
    vec![
        case("metadata", [hello(client("app"))]),
        case("metadata twice", twice),
        case("metadata late", late),
        case("metadata oversize", [hello(oversize)]),
        case("metadata application name", [hello(long)]),
        case("metadata no driver", [hello(doc! { "os": os() })]),
        case("metadata no os", [hello(doc! { "driver": driver("sdam") })]),
        case("metadata empty", [hello(doc! {})]),
    ]
}

fn waiting(hello: &Document) -> Vec<Case> {
    // The arguments decide whether a hello waits, and for how long. These hellos do not allow a
    // stream (M-3, M-5, M-6, M-7, M-8, M-9, M-10, M-11, M-20, M-28).
    let known = known(hello);
    let (process, counter) = parts(&known);
    let other = ObjectId::from_bytes([9; 12]);
    let max = AWAIT.as_millis() as i64;
    let legacy = doc! { "isMaster": 1, "topologyVersion": &known, "maxAwaitTimeMS": max };
    let own = |counter| version(process, counter);
    let mut cases = vec![
        case("await legacy", [ask(legacy.clone())]),
        case("await legacy OP_QUERY", [query(legacy)]),
    ];
    let named = [
        ("await", with(known.clone(), max)),
        ("await no time", with(known.clone(), 0)),
        ("await int32 time", with(known.clone(), max as i32)),
        ("await double time", with(known.clone(), max as f64)),
        ("await other process", with(version(other, counter), max)),
        ("await other process later", with(version(other, counter + 9), max)),
        ("await older counter", with(own(counter - 1), max)),
        ("await newer counter", with(own(counter + 1), max)),
        ("await negative counter", with(own(-1), max)),
        ("await negative counter other process", with(version(other, -1), max)),
        ("await negative time", with(known.clone(), -1)),
        ("await negative time other process", with(version(other, 0), -1)),
        ("await negative both", with(own(-1), -1)),
    ];
    cases.extend(each(ask, named));
    cases
}

/// Returns the cases with malformed awaitable hellos.
fn malformed(hello: &Document) -> Vec<Case> {
    // Invalid combinations of arguments are errors (M-4, M-25, M-27).
    let known = known(hello);
    let (process, counter) = parts(&known);
    let max = AWAIT.as_millis() as i64;
    let int32 = doc! { "processId": process, "counter": 1 };
    let of = |version: Bson| doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": max };
    let version_only = || doc! { "hello": 1, "topologyVersion": &known };
    let awaiting = [
        ("await version only", version_only()),
        ("await time only", doc! { "hello": 1, "maxAwaitTimeMS": max }),
        ("await negative time only", doc! { "hello": 1, "maxAwaitTimeMS": -1 }),
        ("await no counter", with(doc! { "processId": process }, max)),
        ("await no process", with(doc! { "counter": counter }, max)),
        ("await int32 counter", with(int32, max)),
        ("await text", of("x".into())),
        ("await null", of(Bson::Null)),
    ];
    let exhausting = [
        ("exhaust without await", doc! { "hello": 1 }),
        ("exhaust legacy without await", doc! { "isMaster": 1 }),
        ("exhaust version only", version_only()),
        ("exhaust of what has none", doc! { "ping": 1 }),
    ];
    let mut cases = each(ask, awaiting);
    cases.extend(each(exhaust, exhausting));
    cases
}

/// Returns the topology version in `hello`. If there is none, returns an arbitrary one, which
/// servers without streaming ignore.
fn known(hello: &Document) -> Document {
    let known = hello.get_document("topologyVersion").cloned();
    known.unwrap_or_else(|_| version(ObjectId::from_bytes([7; 12]), 6))
}

fn parts(known: &Document) -> (ObjectId, i64) {
    let process = known.get_object_id("processId").unwrap();
    (process, known.get_i64("counter").unwrap())
}

fn with(version: Document, max: impl Into<Bson>) -> Document {
    doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": max }
}

/// Returns the cases for servers that support streaming.
pub(crate) fn streams(hello: &Document) -> Vec<Case> {
    // Each reply in a stream answers the one before, and waits as long as the first one (M-21,
    // M-23).
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
    // Some commands can be sent as OP_QUERY, and OP_MSG requires `$db` (O-33, O-40, O-43).
    let named = [
        ("OP_QUERY isMaster", doc! { "isMaster": 1 }),
        ("OP_QUERY ismaster", doc! { "ismaster": 1 }),
        ("OP_QUERY hello", doc! { "hello": 1 }),
        ("OP_QUERY helloOk", doc! { "isMaster": 1, "helloOk": true }),
        ("OP_QUERY wrapped", doc! { "$query": { "isMaster": 1 } }),
        ("OP_QUERY ping", doc! { "ping": 1 }),
        ("OP_QUERY unknown command", doc! { "explode": 1 }),
    ];
    let mut cases = each(query, named);
    let without = Step::Request(Framing::Msg, doc! { "ping": 1 });
    cases.push(case("no database", [without]));
    let number = Step::Request(Framing::Msg, doc! { "ping": 1, "$db": 1 });
    cases.push(case("database int", [number]));
    cases
}

fn commands(kinds: ServerKind) -> Vec<Case> {
    // The wording of error messages depends on the connection's hello (M-45).
    let insert = || doc! { "insert": "things", "documents": [{ "a": 1 }], "$db": "realism" };
    let find = || doc! { "find": "things", "filter": { "a": 7 }, "$db": "realism" };
    let plain = |body: Document| Step::Request(Framing::Msg, body);
    let session = || {
        let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![5; 16] };
        doc! { "lsid": { "id": uuid }, "txnNumber": 1_i64 }
    };
    let mut retryable = insert();
    retryable.extend(session());
    let mut preferring = find();
    preferring.insert("$readPreference", doc! { "mode": "secondaryPreferred" });
    let greet = || ask(doc! { "isMaster": 1, "helloOk": true });
    let mut cases = vec![
        case("ping", [ask(doc! { "ping": 1 })]),
        case("ping apiVersion 2", [ask(doc! { "ping": 1, "apiVersion": "2" })]),
        case("unknown command", [ask(doc! { "explode": 1 })]),
        case("endSessions", [ask(doc! { "endSessions": [] })]),
        case("find", [plain(find())]),
        case("find helloOk", [greet(), plain(find())]),
        case("find secondaryPreferred", [plain(preferring)]),
        case("insert", [plain(insert())]),
        case("insert helloOk", [greet(), plain(insert())]),
    ];
    if kinds != ServerKind::Standalone {
        cases.push(case("insert retryable", [plain(retryable.clone())]));
    }
    if kinds == ServerKind::Primary {
        let concern = doc! { "code": 91, "errmsg": "waiting failed" };
        for (name, failure, request) in [
            ("insert without its concern", doc! { "writeConcernError": concern }, insert()),
            ("insert failed", doc! { "errorCode": 91 }, retryable.clone()),
            ("insert failed for good", doc! { "errorCode": 2 }, retryable.clone()),
            (
                "insert failed without labels",
                doc! { "errorCode": 91, "errorLabels": [] },
                retryable,
            ),
        ] {
            cases.push(case(
                name,
                [fail_once(&["insert"], failure), plain(request), fail_no_more()],
            ));
        }
    }
    if kinds != ServerKind::Secondary {
        let changes = doc! { "$set": { "m": "x" }, "$inc": { "n": 4 } };
        let steps = [
            doc! {
                "insert": "data",
                "documents": [{ "_id": 1, "n": 1 }, { "_id": 2, "n": 1 }, { "_id": 1, "n": 9 }],
                "ordered": false,
            },
            doc! { "update": "data", "updates": [{ "q": { "_id": 2 }, "u": changes }] },
            doc! { "find": "data", "filter": { "n": { "$nin": [1, 9] } }, "sort": { "_id": -1 } },
            doc! { "find": "data", "filter": { "n": 5_i64 } },
            doc! { "distinct": "data", "key": "n", "query": {} },
            doc! { "delete": "data", "deletes": [{ "q": {}, "limit": 1 }] },
            doc! { "count": "data", "query": {} },
            doc! { "delete": "data", "deletes": [{ "q": {}, "limit": 0 }] },
        ];
        let steps = steps.map(|mut step| {
            step.insert("$db", "realism");
            plain(step)
        });
        cases.push(case("insert and more", steps));
    }
    if kinds != ServerKind::Primary {
        cases.push(case("step down", [ask(doc! { "replSetStepDown": 60 })]));
    }
    cases
}

/// Returns the cases with valid and invalid read preferences.
fn read_preferences() -> Vec<Case> {
    // A mongos validates the staleness limit, the mode and the tags (L-31, L-31b).
    let stale = |mode: &str, seconds: Bson| -> Bson {
        doc! { "mode": mode, "maxStalenessSeconds": seconds }.into()
    };
    let tagged = |mode: &str, tags: Bson| -> Bson { doc! { "mode": mode, "tags": tags }.into() };
    let list = |tags: Vec<Bson>| Bson::Array(tags);
    let dc = |value: Bson| -> Bson { doc! { "dc": value }.into() };
    let none = || -> Bson { doc! {}.into() };
    let surprise = doc! { "mode": "nearest", "surprise": 1 };
    let preferences: Vec<(&str, Bson)> = vec![
        ("preference stale", stale("nearest", 90.into())),
        ("preference stale int64", stale("nearest", 90_i64.into())),
        ("preference stale double", stale("nearest", 90.0.into())),
        ("preference stale fraction", stale("nearest", 90.5.into())),
        ("preference stale text", stale("nearest", "90".into())),
        ("preference stale little", stale("nearest", 89.into())),
        ("preference stale zero", stale("nearest", 0.into())),
        ("preference stale negative", stale("nearest", (-1).into())),
        ("preference stale huge", stale("nearest", i64::MAX.into())),
        ("preference stale primary", stale("primary", 120.into())),
        ("preference stale little primary", stale("primary", 1.into())),
        ("preference stale zero primary", stale("primary", 0.into())),
        ("preference tags", tagged("nearest", list(vec![dc("ny".into()), none()]))),
        ("preference tags none", tagged("nearest", list(vec![]))),
        ("preference tags text", tagged("nearest", "ny".into())),
        ("preference tags number", tagged("nearest", list(vec![dc(1.into())]))),
        ("preference tags list", tagged("nearest", list(vec!["ny".into()]))),
        ("preference tags primary", tagged("primary", list(vec![dc("ny".into())]))),
        ("preference tags empty primary", tagged("primary", list(vec![none()]))),
        ("preference tags none primary", tagged("primary", list(vec![]))),
        ("preference mode unknown", doc! { "mode": "any" }.into()),
        ("preference mode number", doc! { "mode": 1 }.into()),
        ("preference mode none", none()),
        ("preference unknown field", surprise.into()),
        ("preference text", "nearest".into()),
    ];
    let cases = preferences.into_iter().map(|(name, preference)| {
        let find = doc! { "find": "none", "$db": "realism", "$readPreference": preference };
        case(name, [Step::Request(Framing::Msg, find)])
    });
    cases.collect()
}

/// Returns the cases with arguments of a wrong type, and with unknown arguments.
fn arguments() -> Vec<Case> {
    let id = || bson::Uuid::from_bytes([6; 16]);
    let named = [
        ("argument txnNumber int", doc! { "ping": 1, "txnNumber": 1 }),
        ("argument lsid text", doc! { "ping": 1, "lsid": "a" }),
        ("argument lsid null", doc! { "ping": 1, "lsid": null }),
        ("argument lsid id text", doc! { "ping": 1, "lsid": { "id": "a" } }),
        ("argument lsid without id", doc! { "ping": 1, "lsid": {} }),
        ("argument lsid more", doc! { "ping": 1, "lsid": { "id": id(), "other": 1 } }),
        ("argument autocommit int", doc! { "ping": 1, "autocommit": 1 }),
        ("argument apiVersion int", doc! { "ping": 1, "apiVersion": 1 }),
        ("argument cluster time int", doc! { "ping": 1, "$clusterTime": 1 }),
        (
            "argument cluster time of an int",
            doc! { "ping": 1, "$clusterTime": { "clusterTime": 1 } },
        ),
        ("argument time limit text", doc! { "ping": 1, "maxTimeMS": "5" }),
        ("argument time limit fraction", doc! { "ping": 1, "maxTimeMS": 0.5 }),
        ("argument time limit double", doc! { "ping": 1, "maxTimeMS": 5000.0 }),
        ("argument read concern text", doc! { "ping": 1, "readConcern": "local" }),
        ("argument read concern unknown", doc! { "ping": 1, "readConcern": { "other": 1 } }),
        ("argument read concern level int", doc! { "ping": 1, "readConcern": { "level": 1 } }),
        ("argument insert unknown", doc! { "insert": "c", "documents": [{}], "other": 1 }),
    ];
    each(ask, named)
}

/// Returns the cases with a fail point for the connections of one application.
fn application_names() -> Vec<Case> {
    let names = [
        ("fail application", "hello", "mine"),
        ("fail application legacy", "isMaster", "mine"),
        ("fail application lower case", "ismaster", "mine"),
        ("fail no application", "hello", "other"),
    ];
    let cases = names.map(|(name, command, application)| {
        let fail = fail("alwaysOn", HELLOS, doc! { "appName": "mine", "errorCode": 91 });
        let client = doc! {
            "application": { "name": application },
            "driver": { "name": "sdam", "version": "1" },
            "os": { "type": "Linux" },
        };
        let greeting = ask(doc! { command: 1, "client": client });
        case(name, [fail, greeting, ask(doc! { "hello": 1 }), fail_no_more()])
    });
    cases.into()
}

const HELLOS: &[&str] = &["hello", "isMaster"];

/// Returns the request that makes these commands fail in the way that `failure` describes.
fn fail(mode: impl Into<Bson>, commands: &[&str], failure: Document) -> Step {
    let mut data = doc! { "failCommands": commands };
    data.extend(failure);
    ask(doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data })
}

fn fail_once(commands: &[&str], failure: Document) -> Step {
    fail(doc! { "times": 1 }, commands, failure)
}

fn fail_no_more() -> Step {
    ask(doc! { "configureFailPoint": "failCommand", "mode": "off" })
}

fn fail_points() -> Vec<Case> {
    // Fail points work as in real servers (M-46).
    let ping = || ask(doc! { "ping": 1 });
    let once =
        |name, failure| case(name, [fail_once(&["ping"], failure), ping(), ping(), fail_no_more()]);
    let failing = |mode: Bson| fail(mode, &["ping", "configureFailPoint"], doc! { "errorCode": 6 });
    let slow = || doc! { "blockConnection": true, "blockTimeMS": AWAIT.as_millis() as i64 };
    let (mut slow_error, concern) = (slow(), doc! { "code": 64, "errmsg": "waiting timed out" });
    slow_error.insert("errorCode", 91);
    let always = failing("alwaysOn".into());
    let later = failing(doc! { "skip": 1 }.into());
    let hello = || ask(doc! { "hello": 1 });
    let fail_hello = fail_once(HELLOS, doc! { "errorCode": 91 });
    let close = fail_once(&["ping"], doc! { "closeConnection": true });
    // The servers count the failures of all cases.
    let mut cases = vec![
        case("fail always", [always, ping(), ping(), fail_no_more(), ping()]),
        case("fail later", [later, ping(), ping(), fail_no_more()]),
    ];
    cases.extend(
        [
            ("fail 10107", 10107),
            ("fail 13435", 13435),
            ("fail 11602", 11602),
            ("fail 13436", 13436),
            ("fail 189", 189),
            ("fail 11600", 11600),
            ("fail 91", 91),
            ("fail 10058", 10058),
            ("fail 6", 6),
            ("fail 89", 89),
            ("fail 18", 18),
            ("fail 12345", 12345),
        ]
        .map(|(name, code)| once(name, doc! { "errorCode": code })),
    );
    cases.extend([
        case("fail hello", [fail_hello, hello(), hello(), fail_no_more()]),
        once("fail labels", doc! { "errorCode": 189, "errorLabels": ["Foo"] }),
        once("fail write concern of what takes none", doc! { "writeConcernError": concern }),
        once("fail slowly", slow()),
        once("fail slowly with an error", slow_error),
        case("fail by closing", [close, ping()]),
        case("fail point unknown", [ask(doc! { "configureFailPoint": "explode", "mode": "off" })]),
    ]);
    cases
}
