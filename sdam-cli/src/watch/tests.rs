//! Complete runs of the program with simulated deployments on loopback.

use std::{
    cell::RefCell,
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use futures::channel::oneshot;
use sdam_core::time::UnixTime;
use sdam_live::{Certificates, Dns, MemberSpec, Record, ReplicaSet as RealSet, ServerTls, or_skip};
use sdam_sim::{Blueprint, MemberId};
use serde_json::Value;

use super::*;
use crate::{
    recording::Recording,
    terminal::Palette,
    testing::{Lines, block_on, capture, with_arbiter},
};

/// Runs the program; returns its standard output, its standard error and its exit code.
fn watch(line: &[&str]) -> (String, String, io::Result<Exit>) {
    let arguments = Arguments { pause: Duration::ZERO, ..arguments(line) };
    capture(|console| block_on(run(&arguments, console, pending())))
}

fn arguments(line: &[&str]) -> Arguments {
    crate::cli::tests::watch(line)
}

/// Runs the program with `--once`, checks its output in both formats, and returns the JSON output.
fn once(uri: &str, timeout: &str, exit: Exit, topology_type: &str, access: &str) -> Value {
    let (text, remarks, result) = watch(&["--once", "--timeout", timeout, uri]);
    assert_eq!(result.unwrap(), exit, "{text}{remarks}");
    let headline = text.lines().next().unwrap();
    let (name, last) = headline[15..].split_once(", ").unwrap();
    assert_eq!(name.split(' ').next(), Some(topology_type), "{headline}");
    assert_eq!(last, access, "{headline}");

    let (json, _, result) = watch(&["--json", "--once", "--timeout", timeout, uri]);
    assert_eq!(result.unwrap(), exit, "{json}");
    assert_eq!(json.matches('\n').count(), 1, "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["topologyType"], topology_type);
    json["at"].as_str().unwrap().parse::<UnixTime>().unwrap();
    json
}

/// Joins wrapped lines.
fn unfolded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn types(snapshot: &Value) -> Vec<&str> {
    let servers = snapshot["servers"].as_array().unwrap();
    let types = servers.iter().map(|server| server["type"].as_str().unwrap());
    types.collect()
}

/// The time limit for runs that should end long before it.
const LONG: &str = "60";

#[test]
fn once_healthy_deployments_are_writable() {
    let check = |blueprint: Blueprint, topology_type: &str, expected: &[&str]| {
        let server = blueprint.serve().unwrap();
        let json = once(server.uri(), LONG, Exit::SUCCESS, topology_type, "writable");
        let mut types = types(&json);
        types.sort_unstable();
        assert_eq!(types, expected);
        // A load balancer is never checked.
        let server = &json["servers"][0];
        let has_replied = server["rttMs"].as_f64() > Some(0.0);
        for key in ["rttMs", "minRttMs", "minWireVersion", "maxWireVersion"] {
            assert_eq!(server[key].is_number(), has_replied, "{key}");
        }
        assert_eq!(has_replied, topology_type != "LoadBalanced");
    };
    let members = ["RSPrimary", "RSSecondary", "RSSecondary"];
    check(Blueprint::replica_set(3), "ReplicaSetWithPrimary", &members);
    check(Blueprint::standalone(), "Single", &["Standalone"]);
    check(Blueprint::sharded(2), "Sharded", &["Mongos"; 2]);
    check(Blueprint::load_balanced(2), "LoadBalanced", &["LoadBalancer"]);
}

#[test]
fn once_a_set_without_a_majority_is_readable_only() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let primary = set.primary().unwrap().unwrap();
    let mut others = (0..3).map(MemberId).filter(|member| *member != primary);
    set.kill(others.next().unwrap()).unwrap();
    set.kill(primary).unwrap();
    let json = once(set.uri(), LONG, Exit::READABLE_ONLY, "ReplicaSetNoPrimary", "readable only");
    // The secondary may still name the old primary, which then counts as a possible primary.
    let dead = |of: &&str| matches!(*of, "Unknown" | "PossiblePrimary");
    let (dead, alive): (Vec<_>, Vec<_>) = types(&json).into_iter().partition(dead);
    assert_eq!((dead.len(), alive), (2, vec!["RSSecondary"]));
}

#[test]
fn once_a_direct_connection_allows_what_its_server_does() {
    let set = with_arbiter().serve().unwrap();
    let primary = set.primary().unwrap().unwrap();
    for (index, (member, _)) in set.places().iter().enumerate() {
        let uri = format!("mongodb://{member}/?directConnection=true");
        let (exit, access) = match index {
            2 => (Exit::NEITHER, "neither readable nor writable"),
            _ if usize::from(primary.0) == index => (Exit::SUCCESS, "writable"),
            _ => (Exit::READABLE_ONLY, "readable only"),
        };
        once(&uri, LONG, exit, "Single", access);
    }
}

#[test]
fn once_without_replies_it_is_neither_readable_nor_writable() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    set.kill(0).unwrap();
    let neither = "neither readable nor writable";
    let json = once(set.uri(), "0.1", Exit::NEITHER, "ReplicaSetNoPrimary", neither);
    assert!(json["servers"][0]["error"].is_string());
    let (_, remarks, _) = watch(&["--once", "--timeout", "0.1", set.uri()]);
    assert_eq!(remarks, "warning: no server has answered in time\n");
}

/// Checks that `--once` does not wait for the timeout if the only server was removed.
#[test]
fn once_with_a_wrong_set_name_it_is_neither_readable_nor_writable() {
    let set = Blueprint::replica_set(1).serve().unwrap();
    let uri = set.uri().replace("replicaSet=rs0", "replicaSet=other");
    let neither = "neither readable nor writable";
    let json = once(&uri, LONG, Exit::NEITHER, "ReplicaSetNoPrimary", neither);
    assert_eq!(types(&json), [""; 0]);
    let reason = "belongs to the set `rs0`, not `other`: use replicaSet=rs0";
    assert_eq!(json["departures"][0]["reason"], reason);
    let (text, ..) = watch(&["--once", &uri]);
    assert!(unfolded(&text).contains(reason), "{text}");
    let text = watch_until(&[&uri], "replicaSet=rs0");
    assert!(unfolded(&text).contains(reason), "{text}");
}

/// Runs the program while `task` waits for lines of its output, each of which contains one of the
/// given texts. Returns all of the output.
fn watch_while(arguments: Arguments, task: impl FnOnce(&dyn Fn(&[&str]))) -> String {
    let (sender, lines) = mpsc::channel();
    let (interrupt, interrupted) = oneshot::channel();
    let program = thread::spawn(move || {
        let output = Lines::new(sender);
        let console = Console { output, remarks: io::stderr(), palette: Palette::Plain };
        block_on(run(&arguments, console, interrupted.map(Result::unwrap)))
    });
    let text = RefCell::new(String::new());
    task(&|wanted| {
        let is_wanted = |line: &str| wanted.iter().any(|wanted| line.contains(wanted));
        loop {
            let line = lines.recv_timeout(Duration::from_secs(60)).unwrap() + "\n";
            *text.borrow_mut() += &line;
            if is_wanted(&line) {
                return;
            }
        }
    });
    interrupt.send(()).unwrap();
    assert_eq!(program.join().unwrap().unwrap(), Exit::SUCCESS);
    text.into_inner() + &lines.iter().map(|line| line + "\n").collect::<String>()
}

/// Runs the program until it has printed `wanted`.
fn watch_until(line: &[&str], wanted: &str) -> String {
    watch_while(arguments(line), |wait_for| wait_for(&[wanted]))
}

#[test]
fn every_change_is_shown_exactly_once_until_interrupted() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let text = watch_until(&[set.uri()], "primary found");
    let headlines: Vec<&str> =
        text.lines().filter(|line| !line.starts_with(' ')).map(|line| &line[15..]).collect();
    assert_eq!(headlines[0], "ReplicaSetNoPrimary rs0, neither readable nor writable");
    assert!(headlines.contains(&"ReplicaSetWithPrimary rs0, writable"), "{text}");
    assert!(headlines.iter().any(|line| line.starts_with("primary found: 127.0.0.1:")));
    // Closing the topology must not appear as a change of the deployment.
    assert!(!text.contains("Unknown,"), "{text}");
    assert!(!text.contains("lost"), "{text}");
}

#[test]
fn the_demonstration_is_labelled_and_shows_a_failover() {
    let (text, remarks, result) = watch(&["--demo"]);
    assert_eq!(result.unwrap(), Exit::SUCCESS);
    assert_eq!(remarks, "");
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what}: {text}"));
    let expected = [
        "a simulated replica set",
        "ReplicaSetNoPrimary rs0, neither readable nor writable",
        "primary found: ",
        "asking the primary",
        "ReplicaSetNoPrimary rs0, readable only",
        "primary lost: ",
        "no primary for 0.",
        "the end",
    ];
    assert!(expected.map(place).is_sorted(), "{text}");
    let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
    assert!(longest.chars().count() <= 80, "{longest}");
}

#[test]
fn json_output_is_one_object_per_change() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let text = watch_until(&["--json", set.uri()], "RSPrimary");
    let mut snapshots: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(snapshots.len() >= 2, "{text}");
    // Each object contains the time of its change, and differs from the previous object in more
    // than this time.
    let time = |snapshot: &mut Value| snapshot.as_object_mut().unwrap().remove("at").unwrap();
    let times: Vec<_> = snapshots.iter_mut().map(time).collect();
    let times = times.iter().map(|time| time.as_str().unwrap().parse::<UnixTime>());
    assert!(times.collect::<Result<Vec<_>, _>>().unwrap().is_sorted(), "{text}");
    assert_eq!(types(&snapshots[0]), ["Unknown"; 3]);
    assert!(snapshots.windows(2).all(|pair| pair[0] != pair[1]), "{text}");
}

#[cfg(feature = "tui")]
#[test]
fn the_full_screen_needs_a_terminal_that_is_free() {
    use sdam_events::log::LogConfig;

    let check = |line: &[&str], change: &dyn Fn(&mut Arguments), expected| {
        let mut arguments = arguments(line);
        arguments.screen = true;
        change(&mut arguments);
        assert_eq!(arguments.wants_screen(), expected, "{line:?}");
    };
    let log = |variables: &'static [(&str, &str)]| {
        LogConfig::from_env(|name| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    check(&[], &|_| {}, true);
    check(&["--plain"], &|_| {}, false);
    check(&["--json"], &|_| {}, false);
    check(&["--once"], &|_| {}, false);
    check(&[], &|arguments| arguments.screen = false, false);
    let to_terminal: &[_] = &[("MONGODB_LOG_ALL", "debug")];
    check(&[], &|arguments| arguments.log = log(to_terminal), false);
    let to_file: &[_] = &[("MONGODB_LOG_ALL", "debug"), ("MONGODB_LOG_PATH", "/tmp/log")];
    check(&[], &|arguments| arguments.log = log(to_file), true);
}

#[test]
#[ignore = "deep: real servers"]
fn a_real_failover_behind_an_srv_record_and_tls_is_shown_recorded_and_reproduced() {
    let certificates = Arc::new(Certificates::create().unwrap());
    let names = ["a", "b", "c"].map(|name| format!("{name}.sdam.example"));
    let set = RealSet::builder(None).tls(ServerTls::new(&certificates));
    let set = set.start(&names.each_ref().map(|name| MemberSpec::new().horizon(name)));
    let Some(set) = or_skip(set).unwrap() else {
        return;
    };
    let ports = set.members().map(|member| member.address().port());
    let members: Vec<_> = ports.zip(&names).collect();
    let service = "_mongodb._tcp.cluster.sdam.example";
    let records = members.iter().map(|(port, name)| Record::srv(service, name, *port));
    let Some(dns) = or_skip(Dns::start(records)).unwrap() else {
        return;
    };
    let places = members.iter().map(|(port, name)| format!("{name}:{port}=127.0.0.1:{port}"));
    let uri = "mongodb+srv://cluster.sdam.example/?heartbeatFrequencyMS=500";
    let mut target = Target::new(&format!("{uri}&{}", certificates.options()));
    target.dns = Some(dns.address());
    target.translate = Some(places.collect::<Vec<_>>().join(",").parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("failover.jsonl");
    let arguments = Arguments { target, record: Some(file.clone()), ..Arguments::default() };

    watch_while(arguments, |wait_for| {
        wait_for(&["ReplicaSetWithPrimary"]);
        set.step_down().unwrap();
        // If the new primary becomes known before the loss of the old one, the client notices no
        // gap.
        wait_for(&["no primary for ", "no gap noticed: "]);
    });
    let recording = Recording::open(&file).unwrap();
    assert_eq!(recording.defect, None);
    let primaries = recording.events.iter().filter_map(|event| match &event.kind {
        EventKind::TopologyDescriptionChanged { new, .. } => Some(&new.primary()?.address),
        _ => None,
    });
    let mut primaries: Vec<_> = primaries.collect();
    primaries.dedup();
    assert!(primaries.len() >= 2, "{primaries:?}");
}
