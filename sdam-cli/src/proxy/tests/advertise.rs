//! Tests clients of a proxy with `--advertise`, which see a single mongos.

use bson::{Document, doc};
use sdam::{
    ServerType, TopologyType,
    client::{self, Command},
    transport::wire::{OpMsg, OpQuery},
};
use sdam_core::read_preference::ReadMode;

use super::{
    harness::{Client, Deployment, Running, http_get},
    *,
};
use crate::testing::block_on;

fn start(set: &Deployment) -> Running {
    let mut arguments = set.arguments();
    arguments.advertise = Some("127.0.0.1".parse().unwrap());
    arguments.read = Some(ReadMode::Secondary);
    arguments.listen_read = Some("127.0.0.1:0".parse().unwrap());
    Running::start(arguments)
}

#[test]
fn a_driver_that_discovers_members_stays_with_the_proxy_through_a_failover() {
    let set = Deployment::start(Builder::replica_set(3));
    let program = start(&set);
    let old = program.primary();
    let [uri, reads] = [&program.uris[0], &program.uris[1]];
    assert!(!uri.contains('?') && reads.ends_with("/?readPreference=secondary"), "{reads}");
    let use_both = || async {
        let runtime = sdam::runtime::tokio().unwrap();
        let [writer, reader] =
            [uri, reads].map(|uri| client::Client::start(uri, runtime.clone()).unwrap());
        let run = async |client: &client::Client, command: &Command<'_>| {
            client.run(command).await.unwrap();
            let snapshot = client.topology().snapshot();
            let description = snapshot.description();
            assert_eq!(description.topology_type(), TopologyType::Sharded);
            let [server] = description.servers() else { panic!("{description:?}") };
            assert_eq!(server.server_type, ServerType::Mongos);
            assert!(server.topology_version.is_none());
        };
        let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }] }.to_vec().unwrap();
        let find = doc! { "find": "c" }.to_vec().unwrap();
        run(&writer, &Command::write("test", &insert)).await;
        run(&reader, &Command::read("test", &find)).await;
        set.step_down().unwrap();
        program.loses(&old);
        run(&writer, &Command::write("test", &insert)).await;
        writer.close().await;
        reader.close().await;
    };
    block_on(use_both());
    program.finish();
}

#[test]
fn a_driver_that_leaves_for_the_members_is_told_once_with_the_remedy() {
    let set = Deployment::start(Builder::replica_set(3));
    let program = set.proxy(|arguments| arguments.status = Some("127.0.0.1:0".parse().unwrap()));
    let status = program.remark("status: ", &[]);
    program.primary();
    let address = program.uris[0].split('?').next().unwrap();
    let discover = || async {
        let topology = Topology::builder(address).unwrap();
        let topology = topology.start(sdam::runtime::tokio().unwrap()).unwrap();
        let mut snapshots = topology.watch();
        // Wait until the client has learned the names of the members. Then it leaves.
        while !snapshots.next().await.unwrap().description().topology_type().is_replica_set() {}
        topology.close().await;
    };
    block_on(discover());
    let remark = program.remark("127.0.0.1:", &[]);
    for word in ["left after hello", "directConnection=true", "--advertise"] {
        assert!(remark.contains(word), "{remark}");
    }
    block_on(discover());
    let counted = "\nsdam_proxy_only_hello_total 2\n";
    while !http_get(&status, "/metrics").contains(counted) {}
    set.step_down().unwrap();
    program.remark("no primary", &[]);
    program.finish();
}

#[test]
fn a_client_that_stays_is_not_told() {
    let set = Deployment::start(Builder::replica_set(1));
    let program = set.proxy(|arguments| arguments.status = Some("127.0.0.1:0".parse().unwrap()));
    let status = program.remark("status: ", &[]);
    program.primary();
    let mut worker = Client::connect(&program.uris[0]);
    let ping = doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
    worker.send_message(&OpMsg { body: &ping, ..OpMsg::default() }.encode().unwrap());
    worker.receive().unwrap();
    let mut monitor = Client::connect(&program.uris[0]);
    monitor.hello("monitor");
    drop((monitor, worker));
    let counted = "\nsdam_proxy_only_hello_total 1\n";
    while !http_get(&status, "/metrics").contains(counted) {}
    set.step_down().unwrap();
    program.remark("no primary", &[]);
    program.finish();
}

#[test]
fn each_form_of_hello_is_answered_as_by_a_mongos_and_a_stream_as_well() {
    let set = Deployment::start(Builder::replica_set(3));
    let program = start(&set);
    program.primary();
    let direct = set.hello_of_primary();
    let version = direct.get_document("topologyVersion").unwrap();
    let hello =
        |name: &str| doc! { name: 1, "helloOk": true, "$db": "admin", "compression": ["zlib"] };
    let query = |name: &str| {
        let body = hello(name).to_vec().unwrap();
        let query = OpQuery { request_id: 7, flags: 4, collection: "admin.$cmd", body: &body };
        query.encode().unwrap()
    };
    let message = |name: &str, checksum| {
        let body = hello(name).to_vec().unwrap();
        OpMsg { request_id: 8, checksum, body: &body, ..OpMsg::default() }.encode().unwrap()
    };
    let requests = [
        query("isMaster"),
        query("ismaster"),
        query("hello"),
        message("hello", false),
        message("isMaster", true),
    ];
    let mut client = Client::connect(&program.uris[0]);
    let check = |reply: &Document| {
        let writable = ["isWritablePrimary", "ismaster"].map(|name| reply.get_bool(name).ok());
        assert!(writable.contains(&Some(true)), "{reply}");
        assert_eq!(reply.get_str("msg").unwrap(), "isdbgrid");
        for name in
            ["hosts", "setName", "me", "primary", "electionId", "lastWrite", "topologyVersion"]
        {
            assert!(!reply.contains_key(name) && direct.contains_key(name), "{name}");
        }
        for name in ["maxWireVersion", "maxBsonObjectSize", "logicalSessionTimeoutMinutes"] {
            assert_eq!(reply.get(name), direct.get(name), "{name}");
        }
    };
    for request in &requests {
        client.send_message(request);
        check(&client.receive().unwrap());
    }
    // Send several requests at once, with a command between the hello requests.
    let ping = doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
    let ping = OpMsg { request_id: 9, body: &ping, ..OpMsg::default() }.encode().unwrap();
    for request in [&requests[0], &ping, &requests[3], &requests[1]] {
        client.send_message(request);
    }
    for is_hello in [true, false, true, true] {
        let reply = client.receive().unwrap();
        if is_hello { check(&reply) } else { assert!(!reply.contains_key("msg"), "{reply}") }
    }
    // This client sends the topology version of a member, as if it had seen it.
    let mut streaming = hello("hello");
    streaming.insert("topologyVersion", version.clone());
    streaming.insert("maxAwaitTimeMS", 1);
    let body = &*streaming.to_vec().unwrap();
    let request = OpMsg { request_id: 10, exhaust_allowed: true, body, ..OpMsg::default() };
    client.send_message(&request.encode().unwrap());
    for _ in 0..3 {
        check(&client.receive().unwrap());
    }
    program.finish();
}

#[test]
fn other_deployments_are_shown_as_they_are() {
    for builder in [Builder::standalone(), Builder::sharded(1)] {
        let server = builder.start().unwrap();
        let mut arguments = harness::arguments();
        let (_, place) = &server.places()[0];
        arguments.target = Target::new(&format!("mongodb://{place}/"));
        let plain = Running::start(arguments.clone());
        arguments.advertise = Some("127.0.0.1".parse().unwrap());
        let advertised = Running::start(arguments);
        let [first, second] = [&plain, &advertised].map(|program| {
            let mut reply = Client::connect(&program.uris[0]).hello("shown");
            // These fields differ between connections.
            for name in ["localTime", "connectionId", "lastWrite"] {
                reply.remove(name);
            }
            reply
        });
        assert_eq!(first, second);
        plain.finish();
        advertised.finish();
    }
}

#[test]
fn the_advertised_address_is_that_of_the_connection_string() {
    let own = SocketAddr::from(([0, 0, 0, 0], 27117));
    let check = |text: &str, is_first, expected: &str| {
        let advertised: Advertised = text.parse().unwrap();
        assert_eq!(advertised.address(own, is_first).as_str(), expected, "{text}");
    };
    check("db.example.com", true, "db.example.com:27117");
    check("db.example.com:27017", true, "db.example.com:27017");
    check("db.example.com:27017", false, "db.example.com:27117");
    check("[::1]", true, "[::1]:27117");
    check("[::1]:5", true, "[::1]:5");
    for text in ["", "a:b", "a:0", "/tmp/x.sock", "a b", "::1"] {
        let error = text.parse::<Advertised>().unwrap_err().to_string();
        assert!(error.contains("write "), "{text}: {error}");
    }
}
