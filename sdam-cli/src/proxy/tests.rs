//! Tests the complete program with simulated deployments that record what each member receives.

mod advertise;
mod harness;
mod live;

use std::{io::ErrorKind, time::Duration};

use sdam_core::read_preference::{ReadMode, TagSet};
use sdam_sim::serve::Builder;

use self::harness::{Client, Deployment, Running, http_get, start};
use super::*;

#[test]
fn connections_to_a_primary_that_steps_down_are_closed_and_new_ones_reach_the_next() {
    let (set, program, old) = start(3, |_| {});
    let mut clients = [(); 3].map(|()| Client::connect(&program.uris[0]));
    for (number, client) in clients.iter_mut().enumerate() {
        let reply = client.hello(&format!("before-{number}"));
        assert_eq!(reply.get_str("me").unwrap(), old);
    }
    set.step_down().unwrap();
    for client in &mut clients {
        client.assert_closed();
        // The proxy has closed its side of the connection, so only the kernel responds to these
        // bytes.
        client.send("late", None);
    }
    let mut next = Client::connect(&program.uris[0]);
    let reply = next.hello("after");
    assert!(reply.get_bool("isWritablePrimary").unwrap());
    let new = reply.get_str("me").unwrap().to_owned();
    assert_ne!(new, old);
    for number in 0..3 {
        assert_eq!(set.receivers(&format!("before-{number}")), [&*old]);
    }
    assert_eq!(set.receivers("after"), [&*new]);
    assert!(set.receivers("late").is_empty());
    program.remark(&format!("primary: {new}"), &["no primary"]);
    drop(next);
    program.finish();
}

#[test]
fn a_client_waits_while_a_killed_primary_is_replaced() {
    let (set, program, old) = start(3, |_| {});
    let mut client = Client::connect(&program.uris[0]);
    client.hello("before");
    set.kill(sdam_sim::Target::Primary).unwrap();
    client.assert_closed();
    // The client's connection may have ended before the proxy notices that the primary has changed.
    program.loses(&old);
    let mut next = Client::connect(&program.uris[0]);
    let reply = next.hello("after");
    assert!(reply.get_bool("isWritablePrimary").unwrap());
    assert_eq!(set.receivers("after").len(), 1);
    assert_ne!(set.receivers("after"), [&*old]);
    program.finish();
}

#[test]
fn a_frozen_primary_gets_nothing_once_another_is_elected_even_when_it_goes_on() {
    let (set, program, old) = start(3, |_| {});
    let mut idle = Client::connect(&program.uris[0]);
    let mut asking = Client::connect(&program.uris[0]);
    idle.hello("idle");
    asking.hello("asking");
    let frozen = set.primary().unwrap().unwrap();
    set.freeze(frozen).unwrap();
    asking.send("asked", None);
    for client in [&mut asking, &mut idle] {
        client.assert_closed();
        client.send("late", None);
    }
    let mut next = Client::connect(&program.uris[0]);
    let reply = next.hello("after");
    let new = reply.get_str("me").unwrap().to_owned();
    assert_ne!(new, old);
    set.thaw(frozen).unwrap();
    // The replies that the old primary could not send while frozen arrive now.
    for number in 0..5 {
        let marker = format!("thawed-{number}");
        Client::connect(&program.uris[0]).hello(&marker);
        assert_eq!(set.receivers(&marker), [&*new]);
    }
    assert_eq!(set.receivers("asked"), [&*old]);
    assert!(set.receivers("late").is_empty());
    program.remark(&format!("primary: {new}"), &["no primary"]);
    program.finish();
}

#[test]
fn without_a_primary_a_client_is_closed_after_the_wait() {
    let set = Deployment::start(Builder::replica_set(3));
    for member in [0, 1] {
        set.kill(member).unwrap();
    }
    let program = set.proxy(|arguments| arguments.wait = Some(Duration::from_millis(200)));
    let mut client = Client::connect(&program.uris[0]);
    client.send("early", None);
    client.assert_closed();
    let refusal = program.remark("refused 127.0.0.1:", &["primary: ", "no primary"]);
    assert!(refusal.contains("has no primary"), "{refusal}");
    assert!(set.receivers("early").is_empty());
    program.finish();
}

#[test]
fn a_draining_connection_gets_the_reply_in_progress_and_sends_nothing() {
    let (set, program, old) = start(3, |arguments| arguments.drain = Some(Duration::from_secs(60)));
    let mut waiting = Client::connect(&program.uris[0]);
    let mut idle = Client::connect(&program.uris[0]);
    let version = waiting.hello("waiting");
    idle.hello("idle");
    // The member answers this request only when it steps down.
    waiting.send("awaited", Some(version.get_document("topologyVersion").unwrap()));
    set.wait_for("awaited");
    set.step_down().unwrap();
    let reply = waiting.receive().unwrap();
    assert!(!reply.get_bool("isWritablePrimary").unwrap());
    // The client may notice the step-down before the proxy does.
    program.loses(&old);
    waiting.send("late", None);
    waiting.assert_closed();
    idle.assert_closed();
    assert!(set.receivers("late").is_empty());
    program.finish();
}

#[test]
fn the_port_for_reads_follows_mode_and_tags() {
    let builder = Builder::replica_set(3).configure(|config| {
        for (member, dc) in config.members.iter_mut().zip(["ny", "ny", "la"]) {
            member.tags = vec![("dc".into(), dc.into())];
        }
    });
    let set = Deployment::start(builder);
    let mut arguments = set.arguments();
    arguments.read = Some(ReadMode::Nearest);
    let tags: TagSet = [("dc", "la")].into_iter().collect();
    arguments.tags = vec![tags];
    arguments.listen_read = Some("127.0.0.1:0".parse().unwrap());
    let program = Running::start(arguments);
    program.primary();
    for number in 0..3 {
        let mut client = Client::connect(&program.uris[1]);
        let marker = format!("read-{number}");
        client.hello(&marker);
        assert_eq!(set.receivers(&marker), [set.name(2)]);
    }
    program.finish();
}

#[test]
fn connections_for_reads_spread_by_their_number_and_end_when_the_member_becomes_primary() {
    let (set, program, old) = start(3, |arguments| {
        arguments.read = Some(ReadMode::Secondary);
        arguments.listen_read = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut readers: Vec<(String, Client)> = Vec::new();
    let of_first = |readers: &[(String, Client)]| {
        let own = readers.iter().filter(|(me, _)| *me == readers[0].0);
        own.count()
    };
    // If one member becomes known later, it gets all new connections until both members have the
    // same number of connections.
    while readers.len() < 10 || of_first(&readers) * 2 != readers.len() {
        let mut client = Client::connect(&program.uris[1]);
        let me = client.hello("read").get_str("me").unwrap().to_owned();
        assert_ne!(me, old);
        readers.push((me, client));
        assert!(readers.len() < 200, "all to {}", readers[0].0);
    }
    set.step_down().unwrap();
    let remark = program.remark("primary: ", &["no primary"]);
    let new = remark["primary: ".len()..].split(',').next().unwrap();
    let mut promoted = readers.iter_mut().filter(|(me, _)| me == new);
    assert!(promoted.all(|(_, client)| client.receive().is_err()));
    program.finish();
}

#[test]
fn connections_beyond_the_maximum_are_refused() {
    let (_set, program, _) = start(1, |arguments| arguments.max_connections = 1);
    let mut first = Client::connect(&program.uris[0]);
    first.hello("first");
    Client::connect(&program.uris[0]).assert_closed();
    let refusal = program.remark("refused", &[]);
    assert!(refusal.ends_with("1 connections are open, see --max-connections"));
    first.hello("still");
    program.finish();
}

#[test]
fn the_first_signal_waits_for_replies_and_the_second_does_not() {
    let (set, program, _) = start(1, |_| {});
    let mut waiting = Client::connect(&program.uris[0]);
    let version = waiting.hello("waiting");
    waiting.send("awaited", Some(version.get_document("topologyVersion").unwrap()));
    let mut idle = Client::connect(&program.uris[0]);
    idle.hello("idle");
    set.wait_for("awaited");
    program.signal();
    program.remark("stopping: waiting for the replies of 2 connections", &[]);
    idle.assert_closed();
    let refused = std::net::TcpStream::connect(&*waiting.address);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    program.signal();
    waiting.assert_closed();
    assert_eq!(program.join(), Exit::SUCCESS);
}

/// Returns a client to which only the beginning of the reply to "second" has been sent.
fn stopped_reply() -> (Deployment, Running, Client) {
    let (set, program, _) = start(1, |_| {});
    let mut client = Client::connect(&program.uris[0]);
    client.hello("first");
    set.stop_reply(Some("second"));
    client.send("second", None);
    set.wait_for("second");
    (set, program, client)
}

#[test]
fn a_reply_that_pauses_is_not_cut_and_no_further_request_is_sent() {
    let (set, program, mut client) = stopped_reply();
    program.signal();
    program.remark("stopping: ", &[]);
    client.send("third", None);
    // This pause in the reply is longer than the silence after which an encrypted reply would count
    // as complete.
    client.receive_stopped(Duration::from_millis(300), || set.stop_reply(None));
    client.assert_closed();
    assert!(set.receivers("third").is_empty());
    assert_eq!(program.join(), Exit::SUCCESS);
}

#[test]
fn a_client_that_closes_its_side_gets_its_reply() {
    let (set, program, mut client) = stopped_reply();
    client.close_half();
    set.stop_reply(None);
    client.receive().unwrap();
    client.assert_closed();
    program.finish();
}

#[test]
fn a_silent_client_takes_no_connection_of_a_member_and_is_closed_after_the_wait() {
    let (_set, program, _) =
        start(1, |arguments| arguments.wait = Some(Duration::from_millis(300)));
    let mut silent = Client::connect(&program.uris[0]);
    silent.assert_closed();
    program.remark("refused 127.0.0.1:", &[]);
    program.finish();
}

#[test]
fn idle_connections_are_closed_and_one_address_cannot_take_all() {
    let (_set, program, _) = start(1, |arguments| {
        arguments.idle = Some(Duration::from_millis(300));
        arguments.max_per_client = Some(1);
    });
    let mut first = Client::connect(&program.uris[0]);
    let version = first.hello("first");
    let mut second = Client::connect(&program.uris[0]);
    second.assert_closed();
    let refusal = program.remark("refused 127.0.0.1:", &[]);
    assert!(refusal.ends_with("1 connections of it are open, see --max-per-client"), "{refusal}");
    first.assert_closed();
    // A client that waits for a reply is not idle.
    let mut waiting = Client::connect(&program.uris[0]);
    waiting.hello("waiting");
    waiting.send("awaited", Some(version.get_document("topologyVersion").unwrap()));
    waiting.is_open_for(Duration::from_millis(900));
    program.finish();
}

#[test]
fn events_can_be_json() {
    let set = Deployment::start(Builder::replica_set(1));
    let program = set.proxy(|arguments| arguments.json = true);
    let event = program.output();
    let mut event: serde_json::Value = serde_json::from_str(&event).unwrap();
    let at = event.as_object_mut().unwrap().remove("at").unwrap();
    assert!(at.as_str().unwrap().ends_with('Z'), "{at}");
    let name = set.name(0);
    let expected = serde_json::json!({ "event": "primary", "address": name, "was": null });
    assert_eq!(event, expected);
    program.finish();
}

/// The member closes a connection instead of replying. Then the proxy closes the other connection,
/// too.
#[test]
fn a_connection_that_breaks_in_an_exchange_is_reported_to_the_topology() {
    let (set, program, primary) = start(1, |_| {});
    let mut client = Client::connect(&program.uris[0]);
    let mut other = Client::connect(&program.uris[0]);
    let version = client.hello("cut");
    other.hello("other");
    client.send("awaited", Some(version.get_document("topologyVersion").unwrap()));
    set.wait_for("awaited");
    set.cut("cut");
    client.assert_closed();
    // The report makes the server unknown until its next check, so the proxy closes its other
    // connections, too.
    other.assert_closed();
    program.remark(&format!("no primary, before {primary}"), &[]);
    program.remark(&format!("primary: {primary}"), &[]);
    let mut next = Client::connect(&program.uris[0]);
    next.hello("next");
    program.finish();
}

#[test]
fn the_proxy_counts_its_connections_and_knows_its_health() {
    let set = Deployment::start(Builder::replica_set(1));
    let program = set.proxy(|arguments| {
        arguments.status = Some("127.0.0.1:0".parse().unwrap());
        arguments.max_connections = 1;
    });
    let status = program.remark("status: http://", &[]);
    program.primary();
    let get = |path: &str| http_get(&status, path);
    assert!(get("/healthz").starts_with("HTTP/1.1 200 "));
    let mut client = Client::connect(&program.uris[0]);
    client.hello("counted");
    Client::connect(&program.uris[0]).assert_closed();
    program.remark("refused ", &[]);
    let page = get("/metrics");
    let value = |name: &str| -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {page}")).parse().unwrap()
    };
    assert_eq!(value("sdam_proxy_connections"), 1);
    assert_eq!(value("sdam_proxy_connections_total"), 1);
    assert_eq!(value("sdam_proxy_waiting"), 0);
    assert_eq!(value("sdam_proxy_refused_total{reason=\"full\"}"), 1);
    assert_eq!(value("sdam_proxy_first_byte_seconds_count"), 1);
    assert!(value("sdam_proxy_bytes_total{to=\"member\"}") > 50);
    assert!(value("sdam_proxy_bytes_total{to=\"client\"}") > 50);
    // A client that closes its side while a reply is outstanding must be counted as having left.
    set.stop_reply(Some("leaving"));
    client.send("leaving", None);
    set.wait_for("leaving");
    client.close_half();
    set.stop_reply(None);
    client.receive().unwrap();
    client.assert_closed();
    while !get("/metrics").contains("\nsdam_proxy_ended_total{by=\"client\"} 1\n") {}
    while !get("/metrics").contains("\nsdam_proxy_connections 0\n") {}

    let mut client = Client::connect(&program.uris[0]);
    client.hello("lost");
    set.step_down().unwrap();
    client.assert_closed();
    program.remark("no primary", &["127.0.0.1:"]);
    let reply = get("/healthz");
    assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("is not"), "{reply}");
    let page = get("/metrics");
    assert!(page.contains("\nsdam_proxy_ended_total{by=\"lost\"} 1\n"), "{page}");
    // The page may still count the connection for a moment after it is closed.
    while !get("/metrics").contains("\nsdam_proxy_connections 0\n") {}
    program.finish();
}

#[cfg(unix)]
#[test]
fn a_proxy_is_replaced_by_a_new_one_on_the_same_port() {
    let set = Deployment::start(Builder::replica_set(1));
    let mut arguments = set.arguments();
    arguments.reuse_port = true;
    arguments.drain = Some(Duration::from_secs(30));
    let old = Running::start(arguments.clone());
    old.primary();
    let mut client = Client::connect(&old.uris[0]);
    let version = client.hello("first").get_document("topologyVersion").unwrap().clone();
    client.send("outstanding", Some(&version));
    set.wait_for("outstanding");

    arguments.listen = client.address.parse().unwrap();
    let new = Running::start(arguments.clone());
    assert_eq!(new.uris, old.uris);
    new.primary();
    old.signal();
    old.remark("stopping: waiting for the replies of 1 connections", &[]);
    // From now on, only the new proxy accepts connections.
    for number in 0..20 {
        let marker = format!("new-{number}");
        Client::connect(&new.uris[0]).hello(&marker);
        assert_eq!(set.receivers(&marker).len(), 1);
    }
    set.step_down().unwrap();
    assert!(client.receive().is_ok());
    client.assert_closed();
    assert_eq!(old.join(), Exit::SUCCESS);
    new.finish();

    arguments.reuse_port = false;
    let taken = std::net::TcpListener::bind(arguments.listen).unwrap();
    let console = crate::testing::capture(|console| {
        crate::testing::block_on(run(&arguments, console, futures::stream::pending())).unwrap()
    });
    assert_eq!(console.2, Exit::FAILED, "{}", console.1);
    drop(taken);
}
