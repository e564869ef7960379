//! Tests of elections and roles in cases that the specifications' test files do not cover.

use super::*;

fn max_election(machine: &Topology) -> ElectionTuple {
    machine.description().max_election()
}

#[test]
fn only_primaries_raise_the_greatest_election() {
    // The maximum election is kept when the primary is lost (C-26, D-58).
    let mut machine = opened(&options(&["a", "b"]));
    let _ = check(&mut machine, "a", elected(2));
    let before = max_election(&machine);
    for server_type in [ServerType::RsSecondary, ServerType::RsOther] {
        let later = Hello { server_type, ..elected(9) };
        let _ = check(&mut machine, "b", later);
        assert_eq!(max_election(&machine), before, "{server_type}");
    }
    let _ = fail(&mut machine, "a", ErrorKind::Network);
    assert_eq!(max_election(&machine), before, "the primary is lost");
}

#[test]
fn election_ids_are_compared_from_the_first_byte() {
    // The first byte of an election id is the most significant one (C-27).
    let id = |first, last| {
        let mut bytes = [0; 12];
        bytes[0] = first;
        bytes[11] = last;
        ElectionTuple { election_id: Some(ObjectId::from_bytes(bytes)), set_version: Some(1) }
    };
    for max_wire_version in [16, 17] {
        let primary = |election| Hello {
            election,
            wire_versions: WireVersions { min: 0, max: max_wire_version },
            ..elected(0)
        };
        let mut machine = opened(&options(&["a", "b"]));
        let _ = check(&mut machine, "a", primary(id(1, 0)));
        let _ = check(&mut machine, "b", primary(id(0, 0xff)));
        let primary_is = |machine: &Topology| {
            let primary = machine.description().primary().cloned();
            primary.map(|server| server.address.clone())
        };
        assert_eq!(primary_is(&machine), Some(address("a")));
        // This byte would be negative if it were signed.
        let _ = check(&mut machine, "b", primary(id(0x80, 0)));
        assert_eq!(primary_is(&machine), Some(address("b")));
    }
}

#[test]
fn a_server_of_any_type_may_change_to_any_other() {
    // A direct connection may be to a server of any type (C-10, D-1, D-11).
    let of_answers = |own: &&ServerType| own.is_available() && **own != ServerType::LoadBalancer;
    let types = || ServerType::ALL.iter().copied().filter(|own| of_answers(&own));
    let mut machine = topology_of(TopologyType::Single);
    for before in types() {
        for after in types() {
            for server_type in [before, after] {
                let _ = check(&mut machine, "a", hello(server_type));
                let server = &machine.description().servers()[0];
                assert_eq!(server.server_type, server_type, "after {before}");
            }
            assert_eq!(machine.description().topology_type(), TopologyType::Single);
        }
        let _ = fail(&mut machine, "a", ErrorKind::Network);
        let server = &machine.description().servers()[0];
        assert_eq!(server.server_type, ServerType::Unknown, "after {before}");
        // A server that becomes Unknown loses its round-trip time (C-20).
        assert_eq!(server.rtt, None);
    }
}

#[test]
fn a_primary_of_the_known_election_is_not_stale() {
    // A primary whose election equals the known one is not stale (D-57).
    for max_wire_version in [16, 17] {
        let primary = |hosts: &[&str]| Hello {
            hosts: hosts.iter().map(|host| address(host)).collect(),
            wire_versions: WireVersions { min: 0, max: max_wire_version },
            ..elected(2)
        };
        let mut machine = opened(&options(&["a"]));
        let _ = check(&mut machine, "a", primary(&["a"]));
        let _ = check(&mut machine, "a", primary(&["a", "b"]));
        let description = machine.description();
        assert!(description.primary().is_some(), "{max_wire_version}");
        assert_eq!(description.servers().len(), 2, "{max_wire_version}");
    }
}

#[test]
fn a_member_with_another_set_name_is_removed_from_a_set_with_a_primary() {
    // Even a former primary is removed if it reports another set name (D-26).
    for (name, left) in
        [("b", TopologyType::ReplicaSetWithPrimary), ("a", TopologyType::ReplicaSetNoPrimary)]
    {
        let mut machine = opened(&options(&["a"]));
        let _ = check(&mut machine, "a", hello(ServerType::RsPrimary));
        let misnamed = Hello {
            me: Some(address("other")),
            primary: Some(address("b")),
            ..hello(ServerType::RsSecondary)
        };
        let _ = check(&mut machine, name, misnamed);
        let description = machine.description();
        assert!(description.server(&address(name)).is_none(), "{name}");
        assert_eq!(description.topology_type(), left, "{name}");
        let possible = description.servers().iter();
        assert!(
            possible.clone().all(|server| server.server_type != ServerType::PossiblePrimary),
            "{name}: it is not believed"
        );
    }
}
