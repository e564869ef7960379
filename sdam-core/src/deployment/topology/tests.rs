//! Tests of cases that the specifications' test files do not cover: the complete table of topology
//! types and server types, the order of effects, and which inputs are accepted.

mod departures;
mod elections;
mod errors;
mod events;
mod losing;
mod obstacles;
mod services;

use alloc::{
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::time::Duration;

use super::{super::Output, *};
use crate::{
    address::ServerAddress,
    event::EventKind,
    ids::{ElectionTuple, TopologyVersion},
    server::{ServerType, WireVersions},
    topology::DepartureReason,
};

const NOW: Instant = Instant::from_millis(1000);

fn address(name: &str) -> ServerAddress {
    ServerAddress::parse(name).unwrap()
}

fn options(seeds: &[&str]) -> Options {
    Options::new(seeds.iter().map(|seed| address(seed)).collect())
}

/// One of the steps that a change leads to, in order: an output, or a command to a check.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Out(Output),
    /// The server's round-trip times are void.
    Reset(ServerId),
    Cancel(ServerId),
    Check(ServerId),
}

fn change(change: impl FnOnce(&mut Outputs) -> Consequences) -> Vec<Step> {
    let mut out = Outputs::default();
    let news = change(&mut out);
    let mut steps: Vec<_> = out.into_iter().map(Step::Out).collect();
    steps.extend(news.lost.into_iter().map(Step::Reset));
    let cleared = news.cleared.into_iter();
    let cleared = cleared.map(|(server, clear)| Output::PoolClear { server, clear });
    let closed = news.closed.into_iter().map(|server| Output::CloseServer { server });
    steps.extend(cleared.chain(closed).map(Step::Out));
    steps.extend(news.cancel.map(Step::Cancel));
    steps.extend(news.check.into_iter().map(Step::Check));
    steps
}

fn open(machine: &mut Topology) -> Vec<Step> {
    change(|out| machine.open(out))
}

fn close(machine: &mut Topology) -> Vec<Step> {
    change(|out| machine.close(out).unwrap_or_default())
}

fn hosts(machine: &mut Topology, hosts: &[ServerAddress]) -> Vec<Step> {
    change(|out| machine.hosts(NOW, hosts, out))
}

fn died(machine: &mut Topology, server: ServerId) -> Vec<Step> {
    change(|out| machine.monitor_died(NOW, server, out))
}

fn reported(
    machine: &mut Topology,
    server: ServerId,
    report: &ErrorReport,
) -> (ErrorOutcome, Vec<Step>) {
    let mut outcome = None;
    let steps = change(|out| {
        let (own, news) = machine.error(NOW, server, report, out);
        outcome = Some(own);
        news
    });
    (outcome.unwrap(), steps)
}

fn handshake(
    machine: &mut Topology,
    server: ServerId,
    generation: Generation,
    hello: Hello,
) -> Vec<Step> {
    change(|out| machine.handshake(NOW, (server, generation), hello.into(), RTT, out))
}

fn checked(machine: &mut Topology, server: ServerId, outcome: Result<Hello, Error>) -> Vec<Step> {
    let rtt = RTT.filter(|_| outcome.is_ok());
    change(|out| machine.checked(NOW, server, outcome.map(Box::new), rtt, out))
}

fn opened(options: &Options) -> Topology {
    let mut machine = Topology::new(Arc::new(options.clone()));
    assert!(!open(&mut machine).is_empty());
    machine
}

fn id(machine: &Topology, name: &str) -> ServerId {
    machine.description().server(&address(name)).unwrap().id
}

fn hello(server_type: ServerType) -> Hello {
    let of_set = matches!(
        server_type,
        ServerType::RsPrimary
            | ServerType::RsSecondary
            | ServerType::RsArbiter
            | ServerType::RsOther
    );
    Hello {
        server_type,
        wire_versions: WireVersions { min: 0, max: 17 },
        set_name: of_set.then(|| "rs".into()),
        hosts: if of_set { vec![address("a"), address("b")].into() } else { [].into() },
        ..Hello::default()
    }
}

fn elected(name: u8) -> Hello {
    Hello {
        election: ElectionTuple {
            election_id: Some(ObjectId::from_bytes([name; 12])),
            set_version: Some(1),
        },
        ..hello(ServerType::RsPrimary)
    }
}

const RTT: Option<Rtt> = Some(Rtt {
    average: Duration::from_millis(1),
    minimum: Duration::ZERO,
    p90: Duration::from_millis(1),
});

fn check(machine: &mut Topology, name: &str, hello: Hello) -> Vec<Step> {
    let server = id(machine, name);
    checked(machine, server, Ok(hello))
}

fn fail(machine: &mut Topology, name: &str, kind: ErrorKind) -> Vec<Step> {
    let server = id(machine, name);
    let error = Error::new(kind, Stage::Hello, "broken");
    checked(machine, server, Err(error))
}

/// Returns the steps in short form: the action and the server of each one, with commas between them.
fn brief(machine: &Topology, effects: &[Step]) -> String {
    let name = |server: &ServerId| {
        let description = machine.description().server_by_id(*server);
        description.map_or("gone".to_string(), |server| server.address.host().to_string())
    };
    let brief = effects.iter().map(|effect| match effect {
        Step::Out(Output::OpenServer { address, .. }) => alloc::format!("open {}", address.host()),
        Step::Out(Output::PoolReady { server }) => alloc::format!("ready {}", name(server)),
        Step::Out(Output::Publish(_)) => "publish".to_string(),
        Step::Out(Output::Emit(event)) => match event.address() {
            Some(address) => alloc::format!("{} {}", event.name().as_str(), address.host()),
            None => event.name().as_str().to_string(),
        },
        Step::Out(Output::PoolClear { server, clear }) => {
            let how = if clear.interrupt_in_use { " interrupting" } else { "" };
            alloc::format!("clear {} to {}{how}", name(server), clear.generation)
        }
        Step::Out(Output::CloseServer { server }) => alloc::format!("close {}", name(server)),
        Step::Out(other) => panic!("the topology has no such output: {other:?}"),
        Step::Reset(server) => alloc::format!("reset {}", name(server)),
        Step::Cancel(server) => alloc::format!("cancel {}", name(server)),
        Step::Check(server) => alloc::format!("check {}", name(server)),
    });
    brief.collect::<Vec<_>>().join(", ")
}

/// Returns a topology of `topology_type` whose server `a` has not answered yet.
fn topology_of(topology_type: TopologyType) -> Topology {
    let mut machine = match topology_type {
        TopologyType::Single => {
            let mut options = options(&["a"]);
            options.direct_connection = Some(true);
            opened(&options)
        }
        TopologyType::LoadBalanced => {
            let mut options = options(&["a"]);
            options.load_balanced = true;
            opened(&options)
        }
        _ => opened(&options(&["a", "b"])),
    };
    let first = match topology_type {
        TopologyType::Sharded => Some(ServerType::Mongos),
        TopologyType::ReplicaSetNoPrimary => Some(ServerType::RsSecondary),
        TopologyType::ReplicaSetWithPrimary => Some(ServerType::RsPrimary),
        TopologyType::Unknown | TopologyType::Single | TopologyType::LoadBalanced => None,
    };
    if let Some(server_type) = first {
        let _ = check(&mut machine, "b", hello(server_type));
    }
    assert_eq!(machine.description().topology_type(), topology_type);
    machine
}

#[test]
fn every_topology_and_server_type_has_the_specified_transition() {
    // SDAM: "TopologyType table" determines each action (D-10, D-11, D-12, D-13, D-14).
    use ServerType as S;
    use TopologyType as T;
    const STAYS: (bool, Option<T>) = (true, None);
    const GOES: (bool, Option<T>) = (false, None);
    let becomes = |topology_type| (true, Some(topology_type));
    let member = |server_type| matches!(server_type, S::RsSecondary | S::RsArbiter | S::RsOther);
    // A check never yields one of these two types.
    let of_checks = |own: &&S| !matches!(own, S::PossiblePrimary | S::LoadBalancer);
    for &topology_type in T::ALL {
        for &server_type in S::ALL.iter().filter(of_checks) {
            let (remains, becomes) = match (topology_type, server_type) {
                (T::Unknown, S::Standalone) => GOES,
                (T::Unknown, S::Mongos) => becomes(T::Sharded),
                (T::Unknown | T::ReplicaSetNoPrimary, S::RsPrimary) => {
                    becomes(T::ReplicaSetWithPrimary)
                }
                (T::Unknown, own) if member(own) => becomes(T::ReplicaSetNoPrimary),
                (T::Sharded, own) if own != S::Mongos && own != S::Unknown => GOES,
                (T::ReplicaSetNoPrimary | T::ReplicaSetWithPrimary, S::Standalone | S::Mongos) => {
                    GOES
                }
                _ => STAYS,
            };
            let mut machine = topology_of(topology_type);
            if server_type == S::Unknown {
                let _ = fail(&mut machine, "a", ErrorKind::Network);
            } else {
                let _ = check(&mut machine, "a", hello(server_type));
            }
            let description = machine.description();
            let case = alloc::format!("{topology_type} x {server_type}");
            assert_eq!(description.server(&address("a")).is_some(), remains, "{case}");
            assert_eq!(description.topology_type(), becomes.unwrap_or(topology_type), "{case}");
        }
    }
}

#[test]
fn effects_come_in_the_order_of_the_specification() {
    // The specification prescribes this order (D-4, D-7, F-62, F-64, J-3, J-16, J-17, J-20, F-53).
    let mut machine = Topology::new(Arc::new(options(&["a"])));
    let effects = open(&mut machine);
    let text = "TopologyOpening, open a, publish, TopologyDescriptionChanged, ServerOpening a";
    assert_eq!(brief(&machine, &effects), text);
    let effects = check(&mut machine, "a", hello(ServerType::RsPrimary));
    let text = "open b, ready a, publish, ServerDescriptionChanged a, ServerOpening b, \
                TopologyDescriptionChanged";
    assert_eq!(brief(&machine, &effects), text);
    let effects = check(&mut machine, "a", hello(ServerType::RsPrimary));
    assert_eq!(brief(&machine, &effects), "publish");
    let effects = fail(&mut machine, "a", ErrorKind::Timeout);
    let text = "publish, ServerDescriptionChanged a, TopologyDescriptionChanged, reset a, \
                clear a to 1 interrupting";
    assert_eq!(brief(&machine, &effects), text);
    let effects = fail(&mut machine, "a", ErrorKind::Timeout);
    assert_eq!(brief(&machine, &effects), "reset a, clear a to 2 interrupting");
    let effects = close(&mut machine);
    let text = "publish, ServerClosed a, ServerClosed b, TopologyDescriptionChanged, close gone, \
                close gone";
    assert_eq!(brief(&machine, &effects), text);
    assert!(open(&mut machine).is_empty(), "a closed topology stays closed");
}

#[test]
fn a_load_balancer_is_known_and_its_pool_ready_without_a_check() {
    // A load balancer is not checked, so its wire versions are unknown (J-13, J-21, D-12, E-7).
    let mut options = options(&["a"]);
    options.load_balanced = true;
    let mut machine = Topology::new(Arc::new(options.clone()));
    let effects = open(&mut machine);
    assert!(effects.iter().any(|effect| {
        matches!(effect, Step::Out(Output::OpenServer { monitored: false, .. }))
    }));
    assert_eq!(
        brief(&machine, &effects),
        "TopologyOpening, open a, TopologyDescriptionChanged, ServerOpening a, ready a, publish, \
         ServerDescriptionChanged a, TopologyDescriptionChanged"
    );
    let balancer = &machine.description().servers()[0];
    assert_eq!(balancer.wire_versions, WireVersions::default());
    assert!(machine.description().is_compatible());
    // No check makes a load balancer Unknown (I-50).
    let server = balancer.id;
    assert!(check(&mut machine, "a", hello(ServerType::Mongos)).is_empty());
    assert!(fail(&mut machine, "a", ErrorKind::Network).is_empty());
    assert!(died(&mut machine, server).is_empty());
}

#[test]
fn a_displaced_primary_becomes_unknown_is_checked_and_keeps_its_pool_from_4_2_on() {
    // Servers before 4.2 close all connections when they step down, so only their pools are cleared
    // (C-19, D-31, D-34, D-35, J-22).
    for (max_wire_version, clear) in [(17, false), (8, false), (7, true)] {
        let mut machine = opened(&options(&["a", "b"]));
        let mut old = elected(1);
        old.wire_versions.max = max_wire_version;
        let _ = check(&mut machine, "a", old);
        let effects = check(&mut machine, "b", elected(2));
        let clear = if clear { "clear a to 1, " } else { "" };
        let expected = alloc::format!(
            "ready b, publish, ServerDescriptionChanged b, ServerDescriptionChanged a, \
             TopologyDescriptionChanged, reset a, {clear}check a"
        );
        assert_eq!(brief(&machine, &effects), expected);
        let displaced = machine.description().server(&address("a")).unwrap();
        let error = displaced.error.as_ref().unwrap().to_string();
        assert_eq!(error, "primary marked stale due to discovery of newer primary");
    }
}

#[test]
fn the_error_of_a_stale_primary_shows_both_election_tuples() {
    // A stale primary becomes Unknown, but no immediate check is requested (C-18, D-30, D-36).
    let mut machine = opened(&options(&["a", "b"]));
    let _ = check(&mut machine, "b", elected(2));
    let effects = check(&mut machine, "a", elected(1));
    let text = "publish, ServerDescriptionChanged a, TopologyDescriptionChanged, reset a";
    assert_eq!(brief(&machine, &effects), text);
    let stale = machine.description().server(&address("a")).unwrap();
    let text = "primary marked stale due to electionId/setVersion mismatch, \
                (electionId: 010101010101010101010101, setVersion: 1) is stale compared to \
                (electionId: 020202020202020202020202, setVersion: 1)";
    assert_eq!(stale.error.as_ref().unwrap().to_string(), text);
}

#[test]
fn a_server_that_rejoins_gets_a_new_server_id() {
    // Late results of the removed server are ignored (D-5, D-21, C-24).
    let mut machine = opened(&options(&["a", "b"]));
    let old = id(&machine, "b");
    let alone = Hello { hosts: [address("a")].into(), ..hello(ServerType::RsPrimary) };
    let effects = check(&mut machine, "a", alone);
    assert!(brief(&machine, &effects).ends_with(", close gone"));
    let effects = check(&mut machine, "a", hello(ServerType::RsPrimary));
    assert!(brief(&machine, &effects).starts_with("open b, "));
    assert_ne!(id(&machine, "b"), old);
    let late = Ok(hello(ServerType::RsSecondary));
    let late = checked(&mut machine, old, late);
    assert!(late.is_empty());
    assert_eq!(machine.generation(old, None), None);
}

#[test]
fn members_are_known_by_their_ids_in_whatever_order_a_member_lists_them() {
    let mut machine = opened(&options(&["a"]));
    let listed =
        Hello { hosts: ["a", "c", "b"].map(address).into(), ..hello(ServerType::RsSecondary) };
    let _ = check(&mut machine, "a", listed);
    assert!(id(&machine, "c") < id(&machine, "b"));
    for name in ["a", "b", "c"] {
        assert!(machine.generation(id(&machine, name), None).is_some(), "{name}");
    }
}

#[test]
fn the_session_timeout_is_that_of_the_servers_that_remain() {
    let mut machine = opened(&options(&["a", "b"]));
    for (name, minutes) in [("a", 30), ("b", 10)] {
        let mongos =
            Hello { logical_session_timeout_minutes: Some(minutes), ..hello(ServerType::Mongos) };
        let _ = check(&mut machine, name, mongos);
    }
    assert_eq!(machine.description().logical_session_timeout_minutes(), Some(10));
    let _ = hosts(&mut machine, &[address("a")]);
    assert_eq!(machine.description().logical_session_timeout_minutes(), Some(30));
}

#[test]
fn a_handshake_with_an_unavailable_server_makes_it_known_and_requests_a_check() {
    for (fails, expected) in [(true, true), (false, false)] {
        let mut machine = opened(&options(&["a"]));
        let _ = check(&mut machine, "a", hello(ServerType::Mongos));
        if fails {
            let _ = fail(&mut machine, "a", ErrorKind::Network);
        }
        let server = id(&machine, "a");
        let generation = machine.generation(server, None).unwrap();
        let hello = hello(ServerType::Mongos);
        let effects = handshake(&mut machine, server, generation, hello);
        let requests = effects.iter().any(|effect| *effect == Step::Check(server));
        assert_eq!(requests, expected);
        let known = machine.description().server_by_id(server).unwrap();
        assert_eq!(known.server_type, ServerType::Mongos);
    }
}

#[test]
fn a_handshake_of_an_earlier_generation_or_topology_version_is_ignored() {
    let mongos = |counter| Hello {
        topology_version: Some(TopologyVersion { process_id: ObjectId::default(), counter }),
        ..hello(ServerType::Mongos)
    };
    for (fails, counter, ignored) in
        [(false, 5, false), (false, 4, true), (true, 5, true), (true, 4, true)]
    {
        let mut machine = opened(&options(&["a"]));
        let _ = check(&mut machine, "a", mongos(5));
        let server = id(&machine, "a");
        let generation = machine.generation(server, None).unwrap();
        if fails {
            let _ = fail(&mut machine, "a", ErrorKind::Network);
        }
        let hello = Hello { wire_versions: WireVersions { min: 0, max: 21 }, ..mongos(counter) };
        let _ = handshake(&mut machine, server, generation, hello);
        let known = machine.description().server_by_id(server).unwrap();
        assert_eq!(known.wire_versions.max != 21, ignored, "{fails} {counter}");
    }
}

#[test]
fn hosts_are_ignored_unless_the_topology_is_open() {
    let mut machine = Topology::new(Arc::new(options(&["a"])));
    let addresses = [address("b")];
    assert!(hosts(&mut machine, &addresses).is_empty());
    let _ = open(&mut machine);
    let _ = close(&mut machine);
    assert!(hosts(&mut machine, &addresses).is_empty());
    assert_eq!(machine.description().servers(), []);
}

#[test]
fn a_standalone_among_several_hosts_of_an_srv_record_is_removed() {
    // A topology of type Single has one server, regardless of the number of seeds (D-11, D-20).
    let mut machine = opened(&options(&["a"]));
    let addresses = [address("a"), address("b")];
    let _ = hosts(&mut machine, &addresses);
    let _ = check(&mut machine, "a", hello(ServerType::RsGhost));
    let _ = check(&mut machine, "b", hello(ServerType::Standalone));
    let description = machine.description();
    assert_eq!(description.topology_type(), TopologyType::Unknown);
    assert_eq!(description.servers().len(), 1);
    assert!(description.server(&address("a")).is_some());
}

#[test]
fn closing_an_emptied_topology_publishes_no_change() {
    // Its description is already that of a closed topology (J-18, J-20).
    let mut machine = opened(&options(&["a", "b"]));
    let _ = check(&mut machine, "a", hello(ServerType::Standalone));
    let _ = check(&mut machine, "b", hello(ServerType::Standalone));
    assert_eq!(machine.description().servers().len(), 0);
    let effects = close(&mut machine);
    assert_eq!(brief(&machine, &effects), "publish");
}

#[test]
fn members_above_max_servers_are_ignored_and_reported_when_their_number_changes() {
    let mut options = options(&["a"]);
    options.max_servers = 3;
    let mut machine = opened(&options);
    let mut check = |members: u16, expected: &[usize]| {
        let hosts: Vec<_> =
            (27017..27017 + members).map(|port| ServerAddress::new("a", port)).collect();
        let news = Hello { hosts: hosts.into(), ..hello(ServerType::RsPrimary) };
        let effects = check(&mut machine, "a", news);
        let ignored = effects.iter().filter_map(|effect| match effect {
            Step::Out(Output::Emit(EventKind::MembersIgnored { ignored, limit: 3 })) => {
                Some(*ignored)
            }
            _ => None,
        });
        assert_eq!(ignored.collect::<Vec<_>>(), expected, "{members} members");
        let servers = machine.description().servers().len();
        assert_eq!(servers, usize::from(members.min(3)));
    };
    check(10, &[7]);
    check(10, &[]);
    check(5, &[2]);
    check(3, &[]);
    check(2, &[]);
    check(4, &[1]);
}

#[test]
fn the_compatibility_error_names_the_server_and_the_required_release() {
    // The specification prescribes these messages (A-16, E-2, E-3, E-4, E-5).
    let check = |min, max, expected: Option<&str>| {
        let mut machine = opened(&options(&["a"]));
        let mut news = hello(ServerType::Standalone);
        news.wire_versions = WireVersions { min, max };
        let _ = check(&mut machine, "a", news);
        assert_eq!(machine.description().compatibility_error(), expected);
    };
    check(0, 8, None);
    check(29, 40, None);
    check(
        999,
        1000,
        Some(
            "Server at a:27017 requires wire version 999, but this version of sdam only supports \
             up to 29.",
        ),
    );
    check(
        0,
        7,
        Some(
            "Server at a:27017 reports wire version 7, but this version of sdam requires at least \
             8 (MongoDB 4.2).",
        ),
    );
}
