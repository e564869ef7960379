//! Tests of the contents of events.

use super::*;

#[test]
fn a_new_topology_version_is_published_but_new_times_are_not() {
    // Times are ignored when descriptions are compared (C-1, A-44, J-5, J-18, J-23, A-39).
    let news = |counter, last_write_date| Hello {
        topology_version: Some(TopologyVersion { process_id: ObjectId::default(), counter }),
        last_write_date: Some(last_write_date),
        ..hello(ServerType::Standalone)
    };
    let mut machine = opened(&options(&["a"]));
    let _ = check(&mut machine, "a", news(1, 1));
    let rtt = |millis| Rtt { average: Duration::from_millis(millis), ..Rtt::default() };
    let mut told = |counter, last_write_date, millis| {
        let (server, hello) = (id(&machine, "a"), news(counter, last_write_date));
        let (now, rtt_now) = (NOW + rtt(millis).average, Some(rtt(millis)));
        let effects = change(|out| machine.checked(now, server, Ok(hello.into()), rtt_now, out));
        let server = machine.description().server(&address("a")).unwrap();
        assert_eq!(server.last_write_date, Some(last_write_date));
        assert_eq!(server.rtt, Some(rtt(millis)));
        brief(&machine, &effects)
    };
    // If only times change, the new description is published without an event.
    assert_eq!(told(1, 2, 5), "publish");
    assert_eq!(told(2, 2, 5), "publish, ServerDescriptionChanged a, TopologyDescriptionChanged");
}

#[test]
fn a_repeated_seed_opens_one_server() {
    // A standalone server that is the only seed makes the topology Single (D-20).
    let mut machine = opened(&options(&["a", "a"]));
    assert_eq!(machine.description().servers().len(), 1);
    let _ = check(&mut machine, "a", hello(ServerType::Standalone));
    assert_eq!(machine.description().topology_type(), TopologyType::Single);
    assert_eq!(machine.description().servers().len(), 1);
}

#[test]
fn the_event_of_a_stale_primary_shows_what_became_of_it() {
    let mut machine = opened(&options(&["a", "b"]));
    let _ = check(&mut machine, "a", elected(2));
    let effects = check(&mut machine, "b", elected(1));
    let changed = effects.iter().find_map(|effect| match effect {
        Step::Out(Output::Emit(EventKind::ServerDescriptionChanged { new, .. })) => Some(new),
        _ => None,
    });
    let new = changed.unwrap();
    assert_eq!((&new.address, new.server_type), (&address("b"), ServerType::Unknown));
    assert!(new.error.is_some());
}

#[test]
fn the_pool_of_a_member_without_data_is_ready_in_a_direct_connection_only() {
    let told = |direct: bool| {
        let mut options = options(&["a"]);
        if direct {
            options.direct_connection = Some(true);
        } else {
            options.replica_set = Some("rs".into());
        }
        let mut machine = opened(&options);
        let effects = check(&mut machine, "a", hello(ServerType::RsArbiter));
        brief(&machine, &effects)
    };
    assert!(told(true).contains("ready a"), "{}", told(true));
    assert!(!told(false).contains("ready a"), "{}", told(false));
}
