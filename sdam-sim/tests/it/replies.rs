//! Tests of the contents of replies and of fail points: `failCommand`, and
//! `onPrimaryTransactionalWrite`, on which the official files for retryable writes rely.

use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_core::{address::ServerAddress, hello::Hello, server::ServerType};
use sdam_sim::{Blueprint, MemberConfig, SetConfig, version::ServerVersion};

use crate::support::{
    Fixture, address, addresses, awaiting, code, hello, insert, is_ok, ping, set,
};

#[test]
fn m_40_m_41_releases_without_hello_neither_know_nor_announce_it() {
    let [old, late, next] =
        [(ServerVersion::V4_2, 9), (ServerVersion::V4_4, 1), (ServerVersion::V4_4, 2)]
            .map(|(series, patch)| series.patch(patch));
    for version in [old, late] {
        assert_eq!(code(&Fixture::replica_set_of(1, version).hello(0)), 59, "{version}");
    }
    let legacy = doc! { "isMaster": 1, "helloOk": true, "$db": "admin" };
    for version in [old, next] {
        let reply = Fixture::replica_set_of(1, version).call_member(0, &legacy);
        assert!(!reply.contains_key("helloOk"), "{version}: {reply}");
    }
}

#[test]
fn m_42_wire_versions_follow_the_release() {
    for (version, wire) in [("3.6", 6), ("4.0", 7), ("7.0", 21), ("8.0", 25)] {
        let mut fixture = Fixture::replica_set_of(1, version.parse().unwrap());
        let reply = fixture.call_member(0, &doc! { "isMaster": 1, "$db": "admin" });
        assert_eq!(reply.get_i32("maxWireVersion").unwrap(), wire, "{version}");
        let info = fixture.call_member(0, &doc! { "buildInfo": 1, "$db": "admin" });
        assert!(info.get_str("version").unwrap().starts_with(version));
    }
}

#[test]
fn spares_have_addresses_that_no_member_has() {
    let hosts = |names: &str| {
        names.chars().map(|name| ServerAddress::new(&name.to_string(), 27017)).collect::<Vec<_>>()
    };
    let set = SetConfig::new("rs", hosts("bc"));
    let fixture = Fixture::new(&Blueprint::replica_set(set).spares(2));
    let members = fixture.deployment.status().members;
    let own: Vec<_> = members.into_iter().map(|member| member.address).collect();
    assert_eq!(own, hosts("bcad"));
}

#[test]
fn m_42_a_process_without_a_set_is_a_ghost() {
    let set = set([MemberConfig::new(address(0))]);
    let blueprint = Blueprint::replica_set(set).spares(1).at(addresses(2));
    let mut fixture = Fixture::new(&blueprint);
    let reply = fixture.hello(1);
    assert!(reply.get_bool("isreplicaset").unwrap());
    for field in ["setName", "hosts", "setVersion", "lastWrite"] {
        assert!(!reply.contains_key(field), "{field}: {reply}");
    }
    fixture.run("add 1");
    fixture.advance_millis(3000);
    let reply = fixture.hello(1);
    assert!(reply.get_bool("secondary").unwrap(), "{reply}");
    assert_eq!(reply.get_i32("setVersion").unwrap(), 2);
}

#[test]
fn m_42_a_mongos_behind_a_load_balancer_reports_its_service_id_on_request() {
    let blueprint = |version| Blueprint::load_balanced(2).at(addresses(2)).version(version);
    let balanced = doc! { "hello": 1, "loadBalanced": true, "$db": "admin" };
    let mut fixture = Fixture::new(&blueprint(ServerVersion::V8_0));
    let services: Vec<_> = (0..2)
        .map(|member| fixture.call_member(member, &balanced).get_object_id("serviceId").unwrap())
        .collect();
    assert_ne!(services[0], services[1]);
    let again = fixture.call_member(0, &balanced).get_object_id("serviceId");
    assert_eq!(again.unwrap(), services[0]);
    assert!(!fixture.hello(0).contains_key("serviceId"));
    let mut old = Fixture::new(&blueprint(ServerVersion::V4_4));
    assert!(!old.call_member(0, &balanced).contains_key("serviceId"));
    let mut unbalanced = Fixture::sharded(1);
    assert!(!unbalanced.call_member(0, &balanced).contains_key("serviceId"));
}

fn last_write(reply: &Document) -> i64 {
    let last = reply.get_document("lastWrite").unwrap();
    last.get_datetime("lastWriteDate").unwrap().timestamp_millis()
}

#[test]
fn m_43_an_idle_primary_writes_every_ten_seconds() {
    let mut fixture = Fixture::replica_set(3);
    let start = last_write(&fixture.hello(0));
    fixture.advance_millis(9_999);
    assert_eq!(last_write(&fixture.hello(0)), start);
    fixture.advance_millis(1);
    assert_eq!(last_write(&fixture.hello(0)), start + 10_000);
    assert_eq!(last_write(&fixture.hello(1)), start + 10_000);
    // A write postpones the next no-op.
    fixture.advance_millis(5_000);
    assert!(is_ok(&fixture.call_member(0, &insert())));
    assert_eq!(last_write(&fixture.hello(2)), start + 15_000);
    fixture.advance_millis(9_999);
    assert_eq!(last_write(&fixture.hello(0)), start + 15_000);
}

#[test]
fn a_lagging_member_reports_an_older_last_write() {
    let mut fixture = Fixture::configured([
        MemberConfig::new(address(0)),
        MemberConfig::new(address(1)),
        MemberConfig::new(address(2)).delayed(Duration::from_secs(60)),
    ]);
    fixture.run("lag 1 25");
    fixture.advance_millis(200_000);
    let [primary, lagging, delayed] = [0, 1, 2].map(|member| last_write(&fixture.hello(member)));
    assert!((25_000..=37_000).contains(&(primary - lagging)), "{}", primary - lagging);
    assert!((60_000..=72_000).contains(&(primary - delayed)), "{}", primary - delayed);
}

#[test]
fn m_44_the_metadata_limit_of_a_mongos_is_half_that_of_a_mongod() {
    let client = doc! {
        "driver": { "name": "d".repeat(512), "version": "1" },
        "os": { "type": "Linux" },
    };
    let greeting = doc! { "hello": 1, "client": client, "$db": "admin" };
    assert!(is_ok(&Fixture::replica_set(1).call_member(0, &greeting)));
    let mongos = &mut Fixture::sharded(1);
    assert_eq!(code(&mongos.call_member(0, &greeting)), 185);
}

#[test]
fn commands_that_are_not_simulated_are_refused() {
    let mut fixture = Fixture::standalone();
    for command in [
        doc! { "find": "things", "filter": { "n": { "$mod": 2 } }, "$db": "test" },
        doc! { "aggregate": "things", "pipeline": [{ "$unwind": { "path": "$n" } }], "$db": "test" },
    ] {
        let reply = fixture.call_member(0, &command);
        assert_eq!(code(&reply), 2, "{reply}");
        assert!(reply.get_str("errmsg").unwrap().contains("simulated"));
    }
}

#[test]
fn c_4_m_2_hellos_have_the_type_the_election_and_the_version_of_the_member() {
    let members = [0, 1].map(|number| MemberConfig::new(address(number)));
    let [primary, hidden] = members;
    let mut fixture = Fixture::configured([primary, hidden.hidden()]);
    for (member, expected) in [(0, ServerType::RsPrimary), (1, ServerType::RsOther)] {
        let hello = Hello::parse(&fixture.hello(member).to_vec().unwrap()).unwrap();
        let own = fixture.member(member);
        assert_eq!(
            (hello.server_type, hello.topology_version),
            (expected, Some(own.topology_version))
        );
        let election = own.election_id.filter(|_| member == 0);
        assert_eq!(
            (hello.election.election_id, hello.election.set_version),
            (election, own.set_version)
        );
    }
}

#[test]
fn bulk_write_supports_every_kind_of_write_since_8_0() {
    let bulk = doc! {
        "bulkWrite": 1,
        "ops": [
            { "insert": 0, "document": { "_id": 1, "a": 1 } },
            { "insert": 1, "document": { "_id": 1 } },
            { "update": 0, "filter": { "a": 1 }, "updateMods": { "$set": { "a": 2 } } },
            { "delete": 1, "filter": {}, "multi": true },
            { "insert": 0, "document": { "_id": 1 } },
            { "insert": 0, "document": { "_id": 2 } },
        ],
        "nsInfo": [{ "ns": "test.things" }, { "ns": "test.others" }],
        "$db": "admin",
    };
    let mut fixture = Fixture::replica_set(1);
    let reply = fixture.call_member(0, &bulk);
    let counts = ["nInserted", "nModified", "nDeleted", "nErrors"];
    let counts = counts.map(|key| reply.get_i32(key).unwrap());
    // Writes are run in order. After the first failure, no further write is run.
    assert_eq!(counts, [2, 1, 1, 1], "{reply}");
    let results = reply.get_document("cursor").unwrap();
    let results = results.get_array("firstBatch").unwrap();
    let last = results.last().and_then(Bson::as_document).unwrap();
    assert_eq!((results.len(), code(last)), (5, 11000), "{reply}");
    let count = doc! { "count": "things", "query": { "a": 2 }, "$db": "test" };
    assert_eq!(fixture.call_member(0, &count).get_i32("n").ok(), Some(1));

    let mut elsewhere = bulk.clone();
    elsewhere.insert("$db", "test");
    assert_eq!(code(&fixture.call_member(0, &elsewhere)), 13);
    let mut fixture = Fixture::replica_set(2);
    assert_eq!(code(&fixture.call_member(1, &bulk)), 10107);
    let mut fixture = Fixture::replica_set_of(1, ServerVersion::V7_0);
    assert_eq!(code(&fixture.call_member(0, &bulk)), 59);
}

fn configure(mode: impl Into<Bson>, data: Document) -> Document {
    doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" }
}

#[test]
fn m_46_errors_of_overload_have_the_base_of_backoffs_while_the_parameter_is_set() {
    let mut fixture = Fixture::standalone();
    let connection = fixture.connect(0);
    let mut backoff = |labels: &[&str], millis: i32| {
        let set = doc! { "setParameter": 1, "externalClientBaseBackoffMS": millis, "$db": "admin" };
        assert!(is_ok(&fixture.call(connection, &set)));
        let data = doc! { "failCommands": ["ping"], "errorCode": 462, "errorLabels": labels };
        assert!(is_ok(&fixture.call(connection, &configure("alwaysOn", data))));
        fixture.call(connection, &ping()).get("baseBackoffMS").cloned()
    };
    assert_eq!(backoff(&["SystemOverloadedError"], 50), Some(50_i64.into()));
    assert_eq!(backoff(&["RetryableError"], 50), None);
    assert_eq!(backoff(&["SystemOverloadedError"], 0), None);
    let unknown = doc! { "setParameter": 1, "other": 1, "$db": "admin" };
    assert_eq!(code(&fixture.call(connection, &unknown)), 72);
}

#[test]
fn m_46_a_blocked_stream_continues_after_the_block() {
    let mut fixture = Fixture::replica_set(1);
    let connection = fixture.connect(0);
    let known = fixture.call(connection, &hello());
    fixture.run("failpoint 0 commands=hello times=1 block=700");
    fixture.send_exhaust(connection, &awaiting(&known, 1000));
    fixture.advance_millis(1699);
    assert!(fixture.try_receive(connection).is_none());
    fixture.advance_millis(1);
    assert!(fixture.receive(connection).more_to_come);
    fixture.advance_millis(1000);
    assert!(fixture.receive(connection).more_to_come);
}

#[test]
fn m_46_every_reply_of_a_stream_counts() {
    let mut fixture = Fixture::replica_set(1);
    fixture.run("failpoint 0 commands=hello skip=2 code=91");
    let (connection, ..) = fixture.stream(0, 1000);
    fixture.advance_millis(1000);
    assert!(is_ok(&fixture.receive(connection).body));
    assert_eq!(code(&fixture.receive(connection).body), 91);
}

#[test]
fn a_fail_point_that_cannot_be_simulated_is_refused() {
    let mut fixture = Fixture::standalone();
    let other = doc! { "configureFailPoint": "other", "mode": "off", "$db": "admin" };
    assert_eq!(code(&fixture.call_member(0, &other)), 266);
    for request in [
        configure(doc! { "activationProbability": 0.5 }, doc! {}),
        configure("sometimes", doc! {}),
        configure("alwaysOn", doc! { "failCommands": ["ping"], "blockConnection": true }),
    ] {
        assert_eq!(code(&fixture.call_member(0, &request)), 2);
    }
}
