//! Tests that every scan ends, whatever the servers reply.

use std::{collections::BTreeMap, vec::Vec};

use proptest::{collection::vec, prelude::*};

use super::{super::*, world::*};
use crate::{
    address::ServerAddress,
    hello::Hello,
    ids::{ElectionTuple, ObjectId, TopologyVersion},
    server::{ServerType, WireVersions},
};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn hello() -> impl Strategy<Value = Hello> {
    let of_answers = |own: &&ServerType| own.is_available() && **own != ServerType::LoadBalancer;
    let types: Vec<_> = ServerType::ALL.iter().filter(of_answers).copied().collect();
    let types = prop_oneof![6 => prop::sample::select(types), 1 => Just(ServerType::RsPrimary)];
    let names = || prop::sample::select(NAMES.as_slice());
    let version = prop::option::of((0_u8..2, 0_i64..4));
    (
        types,
        vec(names(), 0..4),
        prop::option::of(names()),
        prop::option::of(names()),
        0_u8..4,
        version,
    )
        .prop_map(|(server_type, hosts, me, primary, election, version)| {
            let mut hosts: Vec<ServerAddress> = hosts.into_iter().map(address).collect();
            hosts.sort();
            hosts.dedup();
            Hello {
                server_type,
                wire_versions: WireVersions { min: 0, max: 21 },
                me: me.map(address),
                primary: primary.map(address),
                hosts: hosts.into(),
                set_name: server_type.as_str().starts_with("RS").then(|| "rs".into()),
                election: ElectionTuple {
                    election_id: Some(ObjectId::from_bytes([election; 12])),
                    set_version: Some(1),
                },
                topology_version: version.map(|(process, counter)| TopologyVersion {
                    process_id: ObjectId::from_bytes([process; 12]),
                    counter,
                }),
                ..Hello::default()
            }
        })
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        6 => (0_u64..50, hello()).prop_map(|(took, hello)| Answer::Is(took, hello)),
        2 => (0_u64..50).prop_map(Answer::Down),
        1 => (0_u64..50).prop_map(Answer::Refuses),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_scan_ends_and_checks_no_server_more_than_twice(
        seed: u64,
        replica_set: bool,
        mut answers in vec(answer(), 1..60),
    ) {
        let mut world = World::new("a b c", seed, |options| {
            options.replica_set = replica_set.then(|| "rs".into());
        });
        answers.reverse();
        for scan in 1..=4_u64 {
            let mut checks: BTreeMap<ServerAddress, u32> = BTreeMap::new();
            let mut step = world.request(ScanRequest::Scan);
            let mut steps = 0;
            while step != REST {
                if let Step::Check(server) = step {
                    let description = world.topology.description();
                    let checked = description.server_by_id(server).unwrap().address.clone();
                    // Each check takes the next outcome. Once all are used up, the server's last
                    // outcome is repeated.
                    if let Some(answer) = answers.pop() {
                        world.answers.insert(checked.clone(), answer);
                    }
                    *checks.entry(checked).or_default() += 1;
                }
                steps += 1;
                prop_assert!(steps <= 2 * NAMES.len() + 2, "no end: {:?}", world.log);
                step = world.step(&step).unwrap();
            }
            prop_assert!(checks.values().all(|count| *count <= 2), "{checks:?}");
            // Every server that is still in the topology was checked, or is in its cooldown.
            let started = world.scan.last_scan.unwrap();
            for server in world.topology.description().servers() {
                prop_assert!(
                    checks.contains_key(&server.address)
                        || !server.server_type.is_available() && server.last_update_time.is_some(),
                    "{server:?} was left out"
                );
            }
            world.at(millis(started) as u64 + scan * 1_500);
        }
    }

    #[test]
    fn a_selection_ends_in_bounded_time(
        seed: u64,
        try_once: bool,
        timeout in 0_u64..5_000,
        mut answers in vec(answer(), 1..60),
        probes in vec(any::<bool>(), 0..4),
    ) {
        let mut world = World::new("a b c", seed, |options| {
            options.server_selection_try_once = Some(try_once);
        });
        world.idle = Some(Duration::from_secs(9));
        world.probes = probes;
        answers.reverse();
        let timeout = Duration::from_millis(timeout);
        let mut step = world.request(ScanRequest::Select { timeout });
        let mut scan_time = Duration::ZERO;
        let mut probed = 0;
        loop {
            match step {
                Step::Check(server) => {
                    let description = world.topology.description();
                    let checked = description.server_by_id(server).unwrap().address.clone();
                    if let Some(answer) = answers.pop() {
                        world.answers.insert(checked, answer);
                    }
                }
                Step::Output(Output::Probe { .. }) => probed += 1,
                _ => {}
            }
            let before = world.now;
            let checking = matches!(step, Step::Check(_));
            match world.step(&step) {
                Some(next) => step = next,
                None => break,
            }
            if checking {
                scan_time += world.now.since(before);
            }
        }
        prop_assert!(probed <= 1, "L-67, H-12: {:?}", world.log);
        let sleeps = world.log.iter().filter(|line| line.starts_with("sleep")).count();
        if try_once {
            prop_assert!(sleeps <= 1, "L-66: {:?}", world.log);
        } else {
            // Every scan begins by the deadline, and takes less than 2 s in this test.
            let bound = timeout + Duration::from_secs(2);
            prop_assert!(world.now.since(Instant::EPOCH) <= bound, "L-67: {:?}", world.log);
        }
        prop_assert!(scan_time <= world.now.since(Instant::EPOCH));
    }
}

#[test]
fn servers_that_add_and_remove_each_other_do_not_make_a_scan_endless() {
    let mut world = World::new("a", 1, |options| options.replica_set = Some("rs".into()));
    world.answer("a", primary("b")).answer("b", primary("a"));
    assert_eq!(world.run(ScanRequest::Scan), REST);
    assert_eq!(world.log, ["a", "b", "a", "b"]);
}

#[test]
fn a_server_that_lists_ever_more_members_does_not_make_a_scan_endless() {
    let mut world = World::new("h0", 1, |options| {
        options.replica_set = Some("rs".into());
        options.max_servers = 10;
    });
    for number in 0..100 {
        let (own, next) = (std::format!("h{number}"), std::format!("h{}", number + 1));
        world.answer(&own, primary(&next));
    }
    assert_eq!(world.run(ScanRequest::Scan), REST);
    assert_eq!(world.log.len(), 10);
}
