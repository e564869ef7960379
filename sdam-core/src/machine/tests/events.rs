//! Contents of events.

use alloc::format;

use super::*;
use crate::event::EventKind;

fn told(effects: Effects) -> Vec<EventKind> {
    let events = effects.into_iter().filter_map(|effect| match effect {
        Effect::Emit(event) => Some(event),
        _ => None,
    });
    events.collect()
}

#[test]
fn the_first_descriptions_are_empty_and_of_unknown_servers() {
    // J-1 to J-5, J-14, J-15, J-40, J-42
    let mut machine = TopologyMachine::new(&options(&["b", "a"]), ObjectId::default());
    let events = told(machine.handle(NOW, Input::Open));
    let opened = Arc::clone(machine.description());
    let [a, b] =
        ["a", "b"].map(|name| ServerDescription::unknown(id(&machine, name), address(name)));
    assert_eq!(
        opened
            .servers()
            .iter()
            .map(|server| (**server).clone())
            .collect::<Vec<_>>(),
        [a.clone(), b.clone()]
    );
    let opening = |server: &ServerDescription| EventKind::ServerOpening {
        server: server.id,
        address: server.address.clone(),
    };
    assert_eq!(
        events,
        [
            EventKind::TopologyOpening,
            EventKind::TopologyDescriptionChanged {
                previous: Arc::default(),
                new: Arc::clone(&opened),
            },
            // In the order of the seeds.
            opening(&b),
            opening(&a),
        ]
    );

    let events = told(check(&mut machine, "a", hello(ServerType::Mongos)));
    let sharded = Arc::clone(machine.description());
    let router = Arc::clone(sharded.server(&address("a")).unwrap());
    assert_eq!(
        events,
        [
            EventKind::ServerDescriptionChanged {
                previous: Arc::new(a.clone()),
                new: Arc::clone(&router),
            },
            EventKind::TopologyDescriptionChanged {
                previous: opened,
                new: Arc::clone(&sharded),
            },
        ]
    );
    assert!(router.hosts.is_empty() && router.passives.is_empty() && router.arbiters.is_empty());

    let closed = |server: &ServerDescription| EventKind::ServerClosed {
        server: server.id,
        address: server.address.clone(),
        reason: DepartureReason::Closed,
    };
    assert_eq!(
        told(machine.handle(NOW, Input::Close)),
        [
            closed(&a),
            closed(&b),
            EventKind::TopologyDescriptionChanged {
                previous: sharded,
                new: Arc::default(),
            },
            EventKind::TopologyClosed,
        ]
    );
}

#[test]
fn a_new_topology_version_is_published_but_new_times_are_not() {
    // C-1, A-44, J-5, J-18, J-23, A-39
    let news = |counter, last_write_date| Hello {
        topology_version: Some(TopologyVersion {
            process_id: ObjectId::default(),
            counter,
        }),
        last_write_date: Some(last_write_date),
        ..hello(ServerType::Standalone)
    };
    let mut machine = opened(&options(&["a"]));
    let _ = check(&mut machine, "a", news(1, 1));
    let rtt = |millis| Rtt {
        average: Duration::from_millis(millis),
        ..Rtt::default()
    };
    let mut told = |counter, last_write_date, millis| {
        let input = Input::Checked {
            server: id(&machine, "a"),
            outcome: Ok(news(counter, last_write_date)),
            rtt: Some(rtt(millis)),
        };
        let effects = machine.handle(NOW + rtt(millis).average, input);
        let server = machine.description().server(&address("a")).unwrap();
        assert_eq!(server.last_write_date, Some(last_write_date));
        assert_eq!(server.rtt, Some(rtt(millis)));
        brief(&machine, &effects)
    };
    // The new value is published without an event.
    assert_eq!(told(1, 2, 5), ["publish"]);
    assert_eq!(
        told(2, 2, 5),
        [
            "publish",
            "ServerDescriptionChanged a",
            "TopologyDescriptionChanged"
        ]
    );
}

#[test]
fn the_description_of_a_load_balancer_has_its_address_and_type_only() {
    // D-12
    let mut balanced = options(&["a"]);
    balanced.load_balanced = true;
    let machine = opened(&balanced);
    let server = machine.description().server(&address("a")).unwrap();
    let expected = ServerDescription {
        server_type: ServerType::LoadBalancer,
        ..ServerDescription::unknown(server.id, address("a"))
    };
    assert_eq!(format!("{server:?}"), format!("{expected:?}"));
    assert_eq!(server.last_update_time, None);
}

#[test]
fn a_repeated_seed_opens_one_server() {
    // D-20: a standalone server that is the only seed makes the topology Single.
    let mut machine = opened(&options(&["a", "a"]));
    assert_eq!(machine.description().servers().len(), 1);
    let _ = check(&mut machine, "a", hello(ServerType::Standalone));
    assert_eq!(machine.description().topology_type(), TopologyType::Single);
    assert_eq!(machine.description().servers().len(), 1);
}
