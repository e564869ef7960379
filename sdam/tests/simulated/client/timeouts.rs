//! The time limit of operations (Client Side Operations Timeout).

use bson::oid::ObjectId;
use sdam::{events::CheckOutFailure, pool::Pin};
use sdam_sim::runtime::Latency;
use sdam_testkit::mongos;

use super::*;
use crate::selection::{Harness, hosts};

/// Returns the time in milliseconds for which an operation waits for the pool's only connection,
/// and the error with which the operation then fails.
fn exhausted(world: &World, is_pin: bool) -> (u128, Error) {
    let ping = encoded(&doc! { "ping": 1 });
    let ping = Command::new("admin", ping.as_bytes());
    world.run(async {
        let mut holder = world.client.pin(None).await.unwrap();
        holder.connection().pin(Pin::Cursor);
        let before = world.sim.now();
        let error = if is_pin {
            world.client.pin(None).await.err()
        } else {
            world.client.run(&ping).await.err()
        };
        let took = world.sim.now().since(before).as_millis();
        (took, error.unwrap())
    })
}

#[test]
fn the_time_limit_ends_a_check_out_in_place_of_wait_queue_timeout() {
    // One time limit covers selection and check-out (B-32, L-61, P-6, P-7, S-2, S-3).
    let balanced = Blueprint::load_balanced(1);
    for (blueprint, is_balanced) in [(replica_set(), false), (balanced, true)] {
        for (options, millis) in [
            ("timeoutMS=500", 500),
            ("timeoutMS=500&waitQueueTimeoutMS=20", 500),
            ("timeoutMS=500&serverSelectionTimeoutMS=80", 80),
            ("timeoutMS=500&serverSelectionTimeoutMS=0", 500),
            ("waitQueueTimeoutMS=20", 20),
            ("timeoutMS=0&waitQueueTimeoutMS=20&serverSelectionTimeoutMS=80", 80),
        ] {
            for is_pin in [false, true] {
                let world = World::start(&blueprint, &format!("{options}&maxPoolSize=1"));
                world.sim.run_for(Duration::from_secs(1));
                let (took, error) = exhausted(&world, is_pin);
                assert_eq!(took, millis, "{options} {is_pin}");
                assert!(error.is_timeout(), "{error}");
                let failures = world.events().into_iter().filter_map(|event| match event.kind {
                    EventKind::ConnectionCheckOutFailed { reason, failure, .. } => {
                        Some((reason, failure.to_string()))
                    }
                    _ => None,
                });
                let failures: Vec<_> = failures.collect();
                let [(CheckOutFailure::Timeout, text)] = &*failures else {
                    panic!("{failures:?}");
                };
                assert_eq!(error.kind(), ErrorKind::WaitQueueTimeout, "{error}");
                assert_eq!(**text, *error.message());
                let is_counted = text.contains("in use by cursors: 1,");
                assert_eq!(is_counted, is_balanced, "{error:?}");
            }
        }
    }
}

#[test]
fn a_connection_that_comes_too_late_for_one_check_out_goes_to_the_next_one() {
    // A connection established too late for its check-out is used for the next one (S-7).
    let world = World::start(&replica_set(), "maxPoolSize=1");
    world.sim.run_for(Duration::from_secs(1));
    let slow = Latency { min: Duration::from_millis(50), ..Latency::LAN };
    world.sim.network().set_latency(slow);
    world.run(async {
        let server = world.client.topology().select(&Criteria::write()).await;
        let server = server.unwrap();
        let pool = server.pool();
        let deadline = world.sim.now() + Duration::from_millis(120);
        let error = pool.check_out_within(deadline).await.unwrap_err();
        assert_eq!(world.sim.now(), deadline);
        assert!(error.is_timeout(), "{error}");
        assert_eq!((pool.stats().pending, pool.stats().waiting), (1, 0));
        let connection = pool.check_out().await.unwrap();
        assert_eq!(connection.id().driver, 1);
        let early = deadline + Duration::from_millis(200);
        assert!(world.sim.now() < early, "it was opened again");
    });
}

#[test]
fn a_command_that_the_server_ends_in_time_keeps_its_connection() {
    // `maxTimeMS` is set, so the server ends the command in time (I-70, I-72, S-6).
    let world = World::start(&replica_set(), "timeoutMS=500");
    world.insert(1).unwrap();
    // Wait for several measurements, because `maxTimeMS` is shortened by the minimum round-trip
    // time, which is not known before.
    world.sim.run_for(Duration::from_secs(60));
    let find = encoded(&doc! { "find": "c", "filter": { "$where": "sleep(9000) || true" } });
    let error = world.try_command(&Command::read("test", find.as_bytes())).unwrap_err();
    assert_eq!(error.code(), Some(50), "{error}");
    assert!(error.is_timeout() && !error.is_network(), "{error}");
    let server = world.run(world.client.topology().select(&Criteria::write()));
    assert_eq!(server.unwrap().pool().stats().closed, 0);
}

#[test]
fn a_command_without_time_limit_is_selected_within_server_selection_timeout() {
    // A time limit of 0 replaces `timeoutMS` for the selection, too (S-3).
    let world = World::start(&replica_set(), "timeoutMS=50&serverSelectionTimeoutMS=700");
    for member in 0..3 {
        world.sim.kill(sdam_sim::MemberId(member)).unwrap();
    }
    world.sim.run_for(Duration::from_secs(30));
    let ping = encoded(&doc! { "ping": 1 });
    let ping = Command::new("admin", ping.as_bytes());
    for (command, millis) in [(ping.clone(), 50), (ping.with_timeout(Duration::ZERO), 700)] {
        let before = world.sim.now();
        let error = world.try_command(&command).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SelectionTimeout, "{error}");
        assert_eq!(world.sim.now().since(before).as_millis(), millis, "{error}");
    }
}

/// Returns a find that a client sends to a mongos whose hello has the fields `more`.
fn sent(more: Document, is_balanced: bool) -> Document {
    let hosts = hosts(1);
    let mut hello = mongos();
    hello.extend(more);
    let sent = Arc::<Mutex<Document>>::default();
    let (noted, ok) = (Arc::clone(&sent), doc! { "ok": 1 }.to_vec().unwrap());
    let mut server = Server::replying(&hello);
    server.other = Arc::new(move |request| {
        *noted.lock().unwrap() = Document::from_reader(&*request.body).unwrap();
        Some(ok.clone())
    });
    let mut harness = Harness::new();
    harness.servers.set(&hosts[0], server);
    let mut options = Options::new(hosts);
    options.timeout = Some(Duration::from_secs(10));
    options.load_balanced = is_balanced;
    let client = TopologyBuilder::new(options).client(harness.runtime()).unwrap();
    let find = encoded(&doc! { "find": "c" });
    let reply = harness.begin(async move {
        let find = Command::read("test", find.as_bytes());
        client.run(&find).await.map(drop)
    });
    harness.settle();
    reply.now_or_never().unwrap().unwrap();
    let sent = sent.lock().unwrap();
    sent.clone()
}

#[test]
fn the_hello_of_the_connection_decides_about_the_fields_that_a_command_gets() {
    // The hello of the connection determines whether `maxTimeMS` and `lsid` are sent (I-70, Q-8).
    let sessions = doc! { "logicalSessionTimeoutMinutes": 30 };
    let service = doc! { "serviceId": ObjectId::from_bytes([1; 12]) };
    for (more, is_balanced, field, is_sent) in [
        (doc! {}, false, "maxTimeMS", true),
        (doc! { "iscryptd": true }, false, "maxTimeMS", false),
        (sessions, false, "lsid", true),
        (doc! {}, false, "lsid", false),
        // Behind a load balancer, sessions are always supported (Load Balancers: "Session
        // Support").
        (service, true, "lsid", true),
    ] {
        let sent = sent(more, is_balanced);
        assert_eq!(sent.contains_key(field), is_sent, "{sent}");
    }
}
