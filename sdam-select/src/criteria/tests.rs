use std::string::ToString;

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    options::{Options, SelectionStrategy},
    read_preference::ReadMode,
    server::ServerType::{RsSecondary, Unknown},
    topology::TopologyType::{
        self, LoadBalanced, ReplicaSetNoPrimary, ReplicaSetWithPrimary, Sharded, Single,
    },
};

use super::*;
use crate::{
    candidate::Candidates,
    suitable,
    testing::{address, server, tags, topology},
};

fn limited(seconds: u64) -> ReadPreference {
    ReadPreference::new(ReadMode::Nearest).with_max_staleness(Duration::from_secs(seconds))
}

#[test]
fn contradictory_read_preferences_are_refused_when_criteria_are_built() {
    // Mode primary allows no staleness limit (L-20).
    let limited = ReadPreference::default().with_max_staleness(Duration::from_secs(120));
    let error = Criteria::read(limited).unwrap_err();
    assert_eq!(error.option(), "maxStalenessSeconds");
    let text = error.to_string();
    assert!(text.contains("primaryPreferred"), "{text}");
}

#[test]
fn too_small_staleness_limits_are_refused_on_replica_sets_only() {
    // A limit that is too small is refused even without servers (A-8, L-24, L-25, L-28).
    let check = |topology_type, seconds, heartbeat, smallest: Option<u64>| {
        let settings =
            Settings { heartbeat_frequency: Duration::from_secs(heartbeat), ..Settings::default() };
        let criteria = Criteria::read(limited(seconds)).unwrap();
        let topology = topology(topology_type, []);
        let error = suitable(&topology, &settings, &criteria).err();
        let expected = smallest.map(|smallest| {
            let reason = format!(
                "it must be at least {smallest} (90 s, and heartbeatFrequencyMS {heartbeat}000 plus \
                 the 10 s between writes of an idle primary)"
            );
            let remedy = "raise it or leave it out";
            ConfigError::new("maxStalenessSeconds", seconds.to_string(), reason, remedy)
        });
        assert_eq!(error, expected, "{topology_type} {seconds} {heartbeat}");
    };
    for replica_set in [ReplicaSetNoPrimary, ReplicaSetWithPrimary] {
        check(replica_set, 0, 10, Some(90));
        check(replica_set, 89, 10, Some(90));
        check(replica_set, 90, 10, None);
        check(replica_set, 90, 80, None);
        check(replica_set, 90, 81, Some(91));
        check(replica_set, 129, 120, Some(130));
        check(replica_set, 130, 120, None);
    }
    for other in [TopologyType::Unknown, Single, Sharded, LoadBalanced] {
        check(other, 1, 10, None);
    }
}

#[test]
fn servers_without_last_write_are_refused_only_if_the_client_supports_them() {
    // Servers before 3.4 do not report their last write, so the limit is refused if the client
    // supports such servers (L-30).
    let check = |min_wire_version, old: Option<i32>, refused: bool| {
        let mut first = server(1, old.map_or(Unknown, |_| RsSecondary));
        first.wire_versions.max = old.unwrap_or_default();
        let topology = topology(ReplicaSetNoPrimary, [first, server(2, RsSecondary)]);
        let settings = Settings { min_wire_version, ..Settings::default() };
        let criteria = Criteria::read(limited(120)).unwrap();
        let error = suitable(&topology, &settings, &criteria).err();
        let reason = error.as_ref().map(ConfigError::reason).unwrap_or_default();
        let named = format!("but {} reports wire version {}", address(1), old.unwrap_or_default());
        assert_eq!(reason.ends_with(&named), refused, "{min_wire_version} {error:?}");
        assert_eq!(error.is_some(), refused);
    };
    check(0, Some(4), true);
    check(0, Some(5), false);
    check(0, None, false);
    check(8, Some(4), false);
}

#[test]
fn selectors_run_in_order_and_can_only_remove_servers() {
    // The client's selector runs first; neither runs without suitable servers (L-45, L-46).
    let topology =
        topology(Sharded, (1..=4).map(|it| server(it, sdam_core::server::ServerType::Mongos)));
    let not_first = |suitable: &mut Candidates<'_>| {
        assert_eq!(suitable.len(), 4);
        suitable.retain(|candidate| candidate.index != 0);
    };
    let highest = |suitable: &mut Candidates<'_>| {
        assert_eq!(suitable.len(), 3);
        let last = suitable.iter().map(|candidate| candidate.index).max();
        suitable.retain(|candidate| Some(candidate.index) == last);
    };
    let settings = Settings::default().with_selector(Arc::new(not_first));
    let criteria = Criteria::write().with_selector(Arc::new(highest));
    let found = suitable(&topology, &settings, &criteria).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].address, address(4));
    let empty = self::topology(Sharded, []);
    assert!(suitable(&empty, &settings, &criteria).unwrap().is_empty());
}

#[test]
fn a_logged_selector_names_every_part_that_restricts_the_choice() {
    // Log messages contain the whole selector (K-7).
    let select = || Arc::new(|_: &mut Candidates<'_>| {});
    let preference = limited(90).with_tag_sets([tags(&[("dc", "ny")])].into());
    let read = Criteria::read(preference).unwrap();
    let restricted = read.with_deprioritized([address(1), address(2)]).with_selector(select());
    let settings = Settings { selector: Some(select()), ..Settings::default() };
    let check = |criteria: &Criteria, settings, expected: &str| {
        assert_eq!(criteria.selector_text(settings).to_string(), expected);
    };
    let text = "read preference { mode: nearest, tags: [{dc: ny}], maxStalenessSeconds: 90 }, \
                deprioritized servers [s01:27017, s02:27017], custom selector of the client, custom \
                selector of the operation";
    check(&restricted, &settings, text);
    check(&Criteria::write(), &Settings::default(), "write operation");
}

#[test]
fn a_retry_deprioritizes_the_failed_server_if_sharded_or_overloaded() {
    // Topologies that are not sharded deprioritize a server only after an overload error (L-54).
    let check = |topology_type, retargets, overloaded, expected: &[u64]| {
        let mut error = Error::new(ErrorKind::Command, Stage::Operation, "failed");
        if overloaded {
            error = error.with_label("SystemOverloadedError");
        }
        let after = |criteria: Criteria, number| {
            criteria.after((&address(number), topology_type), retargets, &error)
        };
        let second = after(after(Criteria::write(), 2), 1);
        let expected: Vec<_> = expected.iter().map(|number| address(*number)).collect();
        assert_eq!(second.deprioritized(), expected, "{topology_type} {overloaded}");
    };
    check(Sharded, false, false, &[1, 2]);
    check(Sharded, true, true, &[1, 2]);
    for other in
        [TopologyType::Unknown, Single, ReplicaSetNoPrimary, ReplicaSetWithPrimary, LoadBalanced]
    {
        check(other, true, false, &[]);
        check(other, false, true, &[]);
        check(other, true, true, &[1, 2]);
    }
}

#[test]
fn single_threaded_clients_scan_less_often_and_choose_at_random() {
    // The staleness estimate uses the heartbeat frequency of each kind of client (L-28, L-42).
    let options = Options::new(alloc::vec![]);
    let settings = Settings::single_threaded(&options);
    assert_eq!(settings.heartbeat_frequency, Duration::from_secs(60));
    assert_eq!(settings.strategy, SelectionStrategy::Random);
    let settings = Settings::new(&options);
    assert_eq!(settings.heartbeat_frequency, Duration::from_secs(10));
    assert_eq!(settings.strategy, SelectionStrategy::TwoChoices);
}

#[test]
fn a_shared_preference_is_the_one_it_was_made_of() {
    for &mode in ReadMode::ALL {
        let plain = ReadPreference::new(mode);
        let limited = plain.clone().with_max_staleness(Duration::from_secs(90));
        assert_eq!(*SharedPreference::from(mode), plain);
        for preference in [plain, limited] {
            let shared = SharedPreference::from(Arc::new(preference.clone()));
            assert_eq!(*shared, preference);
            assert_eq!(SharedPreference::from(preference), shared);
        }
    }
}
