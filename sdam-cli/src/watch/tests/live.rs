//! Failovers of real replica sets.

use std::{
    io,
    sync::mpsc::{self, Receiver},
    thread,
};

use sdam_live::{Certificates, Dns, MemberSpec, Record, ReplicaSet as RealSet, ServerTls, or_skip};

use super::*;
use crate::testing::Lines;

fn wait_for(lines: &Receiver<String>, wanted: &[&str]) {
    let is_wanted = |line: &String| wanted.iter().any(|wanted| line.contains(wanted));
    while !is_wanted(&lines.recv_timeout(Duration::from_secs(60)).unwrap()) {}
}

/// Watches a real set until a failover has taken place.
fn watch_failover(set: &RealSet, arguments: Arguments) {
    let (sender, lines) = mpsc::channel();
    let (interrupt, interrupted) = oneshot::channel();
    let program = thread::spawn(move || {
        let console =
            Console { output: Lines::new(sender), remarks: io::stderr(), palette: Palette::Plain };
        let interrupted = async {
            let _ = interrupted.await;
        };
        block_on(run(&arguments, console, interrupted))
    });
    wait_for(&lines, &["ReplicaSetWithPrimary"]);
    set.step_down().unwrap();
    // If the new primary becomes known before the loss of the old one, the client notices no gap.
    wait_for(&lines, &["no primary for ", "no gap noticed: "]);
    interrupt.send(()).unwrap();
    assert_eq!(program.join().unwrap().unwrap(), Exit::SUCCESS);
}

#[test]
#[ignore = "deep: real servers"]
fn a_failover_behind_an_srv_record_and_tls_is_shown() {
    let certificates = Arc::new(Certificates::create().unwrap());
    let member = |name| MemberSpec::new().horizon(&format!("{name}.sdam.example"));
    let set = RealSet::builder(None).tls(ServerTls::new(&certificates));
    let Some(set) = or_skip(set.start(&["a", "b", "c"].map(member))).unwrap() else {
        return;
    };
    let members = set.members().zip(["a", "b", "c"]).map(|(member, name)| {
        let port = member.address().port();
        (format!("{name}.sdam.example"), port)
    });
    let members: Vec<_> = members.collect();
    let service = "_mongodb._tcp.cluster.sdam.example";
    let record = |(name, port): &(String, u16)| Record::srv(service, name, *port);
    let Some(dns) = or_skip(Dns::start(members.iter().map(record))).unwrap() else {
        return;
    };
    let place = |(name, port): &(String, u16)| format!("{name}:{port}=127.0.0.1:{port}");
    let places: Vec<_> = members.iter().map(place).collect();
    let mut target = Target::new(&format!(
        "mongodb+srv://cluster.sdam.example/?heartbeatFrequencyMS=500&{}",
        certificates.options(),
    ));
    target.dns = Some(dns.address());
    target.translate = Some(places.join(",").parse().unwrap());
    watch_failover(&set, Arguments { target, ..Arguments::default() });
}

#[test]
#[ignore = "deep: real servers"]
fn a_real_failover_is_recorded_and_reproduced() {
    let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new()];
    let Some(set) = or_skip(RealSet::start(None, &members)).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("failover.jsonl");
    let target = Target::new(&format!("{}&heartbeatFrequencyMS=500", set.uri()));
    let record = Some(file.clone());
    watch_failover(&set, Arguments { target, record, ..Arguments::default() });

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
