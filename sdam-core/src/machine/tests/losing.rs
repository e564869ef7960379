//! Effects of losing a server, for any cause.

use alloc::vec::Vec;

use super::*;

#[test]
fn a_lost_server_has_the_same_effects_whether_a_check_or_an_operation_failed() {
    // C-20, G-3, G-14, F-51, F-53
    type Lose = fn(&mut TopologyMachine, ServerId) -> Effects;
    let paths: [(&str, TopologyType, Lose); 7] = [
        ("failed check", TopologyType::Unknown, |machine, _| {
            fail(machine, "a", ErrorKind::Command)
        }),
        ("dead monitor", TopologyType::Unknown, |machine, server| {
            machine.handle(NOW, Input::MonitorDied { server })
        }),
        ("network error", TopologyType::Unknown, |machine, server| {
            errors::network_error(machine, server)
        }),
        ("state change", TopologyType::Unknown, |machine, server| {
            errors::state_change(machine, server)
        }),
        ("displaced primary", TopologyType::Unknown, |machine, _| {
            check(machine, "b", elected(2))
        }),
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
        let lost: Vec<_> = effects
            .iter()
            .filter(|effect| {
                let known = false;
                **effect == Effect::ServerKnown { server, known }
                    || **effect == Effect::ResetRtt { server }
            })
            .collect();
        assert_eq!(lost.len(), 2, "{path}: {effects:?}");
        let description = machine.description().server_by_id(server).unwrap();
        assert_eq!(description.rtt, None, "{path}");
    }
}

#[test]
fn a_dead_monitor_marks_its_server_unknown_and_does_not_clear_the_pool() {
    let mut machine = opened(&options(&["a", "b"]));
    let _ = check(&mut machine, "a", hello(ServerType::RsPrimary));
    let server = id(&machine, "a");
    let effects = machine.handle(NOW, Input::MonitorDied { server });
    assert_eq!(
        brief(&machine, &effects),
        [
            "publish",
            "ServerDescriptionChanged a",
            "TopologyDescriptionChanged",
            "unknown a",
            "reset a",
        ]
    );
    assert_eq!(machine.generation(server, None), Some(Generation::FIRST));
}
