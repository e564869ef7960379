//! Tests of the effects of losing a server, whatever the cause.

use super::*;

#[test]
fn a_lost_server_has_the_same_effects_whether_a_check_or_an_operation_failed() {
    // Each cause resets the round-trip times (C-20, G-3, G-14, F-51, F-53).
    type Lose = fn(&mut Topology, ServerId) -> Vec<Step>;
    let paths: [(&str, TopologyType, Lose); 7] = [
        ("failed check", TopologyType::Unknown, |machine, _| {
            fail(machine, "a", ErrorKind::Command)
        }),
        ("dead monitor", TopologyType::Unknown, |machine, server| died(machine, server)),
        ("network error", TopologyType::Unknown, |machine, server| {
            errors::network_error(machine, server)
        }),
        ("state change", TopologyType::Unknown, |machine, server| {
            errors::state_change(machine, server)
        }),
        ("displaced primary", TopologyType::Unknown, |machine, _| check(machine, "b", elected(2))),
        ("stale primary", TopologyType::Unknown, |machine, _| {
            let _ = check(machine, "a", hello(ServerType::RsSecondary));
            let _ = check(machine, "b", elected(2));
            check(machine, "a", elected(1))
        }),
        ("wrong set name", TopologyType::Single, |machine, _| {
            let other = Some("other".into());
            let mut renamed = elected(1);
            renamed.set_name = other;
            check(machine, "a", renamed)
        }),
    ];
    for (path, topology_type, lose) in paths {
        let mut options = options(&["a", "b"]);
        if topology_type == TopologyType::Single {
            options.seeds.truncate(1);
            options.direct_connection = Some(true);
        }
        options.replica_set = Some("rs".into());
        let mut machine = opened(&options);
        let _ = check(&mut machine, "a", elected(1));
        let server = id(&machine, "a");
        assert!(machine.is_known(server), "{path}");
        let effects = lose(&mut machine, server);
        assert!(!machine.is_known(server), "{path}");
        let reset = Step::Reset(server);
        let resets = effects.iter().filter(|effect| **effect == reset);
        assert_eq!(resets.count(), 1, "{path}: {effects:?}");
        let description = machine.description().server_by_id(server).unwrap();
        assert_eq!(description.rtt, None, "{path}");
    }
}
