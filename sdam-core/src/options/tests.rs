use alloc::{
    string::{String, ToString},
    vec,
    vec::Vec,
};

use super::*;
use crate::read_preference::ReadMode;

fn seeds(count: usize) -> Vec<ServerAddress> {
    (0..count).map(|index| ServerAddress::new(&alloc::format!("h{index}"), 1)).collect()
}

fn one() -> Options {
    Options::new(seeds(1))
}

fn one_with(change: impl FnOnce(&mut Options)) -> Options {
    changed(one(), change)
}

fn changed(mut options: Options, change: impl FnOnce(&mut Options)) -> Options {
    change(&mut options);
    options
}

/// Asserts that `options` are rejected because of `option`, and that the message contains the name
/// of this option, its value and a remedy.
fn check_refused(options: &Options, option: &str, value: &str) {
    let error = options.validate().unwrap_err();
    assert_eq!((error.option(), error.value()), (option, value), "{error}");
    let text = error.to_string();
    for part in [option, value, error.reason(), error.remedy()] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!error.reason().is_empty() && !error.remedy().is_empty());
}

fn check_accepted(options: &Options) {
    assert_eq!(options.validate(), Ok(()), "{options:?}");
}

#[test]
fn defaults_are_those_of_the_specifications() {
    // The specifications define these defaults (B-14 to B-21).
    let options = one();
    check_accepted(&options.clone());
    assert_eq!(options.monitor_frequency(), Duration::from_secs(10));
    assert_eq!(options.scan_frequency(), Duration::from_secs(60));
    assert_eq!(options.connect_timeout, Some(Duration::from_secs(10)));
    assert_eq!(options.local_threshold, Duration::from_millis(15));
    assert_eq!(options.server_selection_timeout, Duration::from_secs(30));
    assert_eq!(options.socket_check_interval, Duration::from_secs(5));
    assert_eq!(options.server_monitoring_mode, ServerMonitoringMode::Auto);
    assert_eq!(options.server_selection_try_once, None);
    assert_eq!(options.read_preference.mode, ReadMode::Primary);
    assert_eq!(options.app_name, None);
}

#[test]
fn options_decide_the_initial_topology_type() {
    // Unless an option determines the initial type, the client discovers the deployment (B-6, B-7).
    let check = |options: Options, expected| {
        assert_eq!(options.topology_type(), expected, "{options:?}");
        check_accepted(&options);
    };
    check(one(), TopologyType::Unknown);
    check(Options::new(seeds(3)), TopologyType::Unknown);
    check(one_with(|own| own.direct_connection = Some(true)), TopologyType::Single);
    check(one_with(|own| own.direct_connection = Some(false)), TopologyType::Unknown);
    check(
        one_with(|own| {
            own.direct_connection = Some(true);
            own.replica_set = Some("rs".into());
        }),
        TopologyType::Single,
    );
    check(
        one_with(|own| {
            own.direct_connection = Some(false);
            own.replica_set = Some("rs".into());
        }),
        TopologyType::ReplicaSetNoPrimary,
    );
    check(one_with(|own| own.replica_set = Some("rs".into())), TopologyType::ReplicaSetNoPrimary);
    check(one_with(|own| own.load_balanced = true), TopologyType::LoadBalanced);
    check(
        one_with(|own| {
            own.load_balanced = true;
            own.direct_connection = Some(false);
        }),
        TopologyType::LoadBalanced,
    );
    for explicit in [
        TopologyType::Single,
        TopologyType::ReplicaSetNoPrimary,
        TopologyType::Sharded,
        TopologyType::Unknown,
    ] {
        check(one_with(|own| own.initial_topology_type = Some(explicit)), explicit);
    }
    let balanced = TopologyType::LoadBalanced;
    let twice = one_with(|own| {
        own.load_balanced = true;
        own.initial_topology_type = Some(balanced);
    });
    check(twice, balanced);
}

#[test]
fn a_single_topology_accepts_only_one_seed() {
    // A topology of type Single needs exactly one seed (B-10).
    let two = Options::new(seeds(2));
    let refused = changed(two.clone(), |own| own.direct_connection = Some(true));
    check_refused(&refused, "directConnection", "true");
    let refused =
        changed(two.clone(), |own| own.initial_topology_type = Some(TopologyType::Single));
    check_refused(&refused, "initialTopologyType", "Single");
    check_accepted(&changed(two, |own| own.direct_connection = Some(false)));
}

#[test]
fn replica_set_is_refused_with_a_topology_type_without_set_name() {
    // A set name requires a type that uses it (B-10).
    let named = one_with(|own| own.replica_set = Some("rs".into()));
    for explicit in [
        TopologyType::Sharded,
        TopologyType::Unknown,
        TopologyType::LoadBalanced,
        TopologyType::ReplicaSetWithPrimary,
    ] {
        let refused = changed(named.clone(), |own| own.initial_topology_type = Some(explicit));
        check_refused(&refused, "initialTopologyType", explicit.as_str());
    }
    for explicit in [TopologyType::Single, TopologyType::ReplicaSetNoPrimary] {
        check_accepted(&changed(named.clone(), |own| own.initial_topology_type = Some(explicit)));
    }
}

#[test]
fn an_explicit_type_must_not_contradict_direct_connection() {
    // The options that determine the initial type must agree (B-13).
    let check = |explicit, direct, allowed| {
        let options = one_with(|own| {
            own.initial_topology_type = Some(explicit);
            own.direct_connection = Some(direct);
        });
        assert_eq!(options.validate().is_ok(), allowed, "{explicit:?}, {direct}");
    };
    check(TopologyType::Single, true, true);
    check(TopologyType::Single, false, false);
    check(TopologyType::Sharded, true, false);
    check(TopologyType::Sharded, false, true);
    check(TopologyType::ReplicaSetNoPrimary, true, false);
    check(TopologyType::Unknown, true, false);
    check(TopologyType::LoadBalanced, true, false);
    let contradiction = one_with(|own| {
        own.initial_topology_type = Some(TopologyType::Sharded);
        own.load_balanced = true;
    });
    check_refused(&contradiction, "initialTopologyType", "Sharded");
}

#[test]
fn types_that_need_a_primary_or_load_balanced_are_refused_without() {
    // These types cannot be set: only discovery can find a primary, and without `loadBalanced`,
    // connections would not request a service id (B-7).
    for explicit in [TopologyType::ReplicaSetWithPrimary, TopologyType::LoadBalanced] {
        let refused = one_with(|own| own.initial_topology_type = Some(explicit));
        check_refused(&refused, "initialTopologyType", explicit.as_str());
    }
}

#[test]
fn only_version_1_of_the_stable_api_is_accepted() {
    // The stable API version can be declared only in code (B-33).
    let mut api = ServerApi::v1();
    check_accepted(&one_with(|own| own.server_api = Some(api.clone())));
    for version in ["", "2", "1.0", " 1", "v1"] {
        api.version = version.into();
        check_refused(&one_with(|own| own.server_api = Some(api.clone())), "serverApi", version);
    }
}

#[test]
fn heartbeats_below_the_minimum_are_refused_in_code() {
    // The minimum is 500 ms. Tests of drivers may lower it, but not to zero (B-14).
    let heartbeat =
        |millis| one_with(|own| own.heartbeat_frequency = Some(Duration::from_millis(millis)));
    let with = |min, millis| {
        let mut options = heartbeat(millis);
        options.deviations.min_heartbeat_frequency = Duration::from_millis(min);
        options
    };
    check_accepted(&heartbeat(500));
    check_refused(&heartbeat(499), "heartbeatFrequencyMS", "499");
    check_refused(&heartbeat(0), "heartbeatFrequencyMS", "0");
    check_accepted(&with(50, 50));
    check_refused(&with(50, 49), "heartbeatFrequencyMS", "49");
    let refused = with(50, 49).validate().unwrap_err().to_string();
    assert!(refused.contains("at least 50 ms"), "{refused}");
    check_refused(&with(0, 500), "minHeartbeatFrequencyMS", "0");
    // Values are clamped even if the fields were set directly.
    for (options, min) in [(heartbeat(1), 500), (with(50, 1), 50)] {
        assert_eq!(options.monitor_frequency().as_millis(), min);
        assert_eq!(options.scan_frequency().as_millis(), min);
    }
}

#[test]
fn a_user_timeout_that_the_system_would_ignore_is_refused() {
    let with = |time| one_with(|own| own.tcp_user_timeout = Some(time));
    check_accepted(&with(Duration::from_millis(1)));
    check_refused(&with(Duration::from_micros(999)), "tcpUserTimeout", "999µs");
    check_refused(&with(Duration::ZERO), "tcpUserTimeout", "0ns");
}

#[test]
fn the_floor_of_a_detector_is_at_least_a_millisecond() {
    for (micros, is_accepted) in [(1_000, true), (999, false)] {
        let mut detector = Detector::PROBING;
        detector.floor = Duration::from_micros(micros);
        let options = one_with(|own| own.detector = Some(detector));
        assert_eq!(options.validate().is_ok(), is_accepted, "{micros}");
    }
}

#[test]
fn warnings_of_a_driver_are_published_with_the_others() {
    let mut options = one();
    options.warn(Warning::new("compressors", "", "no support", "it has no effect"));
    let warnings = options.multi_threaded_warnings();
    assert!(warnings.iter().any(|warning| warning.option() == "compressors"), "{warnings:?}");
}

#[test]
fn try_once_must_not_differ_between_string_and_code() {
    // Contradictory values are rejected, although values set in code usually take precedence (B-20,
    // B-38).
    let uri: Options = "mongodb://a/?serverSelectionTryOnce=false".parse().unwrap();
    check_accepted(&uri.clone());
    check_accepted(&changed(uri.clone(), |own| own.server_selection_try_once = Some(false)));
    let refused = changed(uri, |own| own.server_selection_try_once = Some(true));
    check_refused(&refused, "serverSelectionTryOnce", "true");
    check_accepted(&one_with(|own| own.server_selection_try_once = Some(true)));
}

#[test]
fn options_set_in_code_override_the_connection_string() {
    // Values set in code take precedence (B-38).
    let options = Options::parse("mongodb://a/?connectTimeoutMS=5&replicaSet=x&localThresholdMS=1");
    let options = changed(options.unwrap(), |own| {
        own.connect_timeout = Duration::from_millis(7).into();
        own.replica_set = Some("y".into());
    });
    assert_eq!(options.connect_timeout, Some(Duration::from_millis(7)));
    assert_eq!(options.replica_set.as_deref(), Some("y"));
    assert_eq!(options.local_threshold, Duration::from_millis(1));
}

#[test]
fn a_repeated_seed_is_used_once_with_a_warning() {
    // A duplicate does not count as a second seed (B-10, B-12, D-20).
    let twice = Options::new(vec![ServerAddress::new("a", 1), ServerAddress::new("A", 1)]);
    check_accepted(&changed(twice.clone(), |own| own.direct_connection = Some(true)));
    check_accepted(&changed(twice.clone(), |own| own.load_balanced = true));
    check_accepted(&changed(twice.clone(), |own| own.max_servers = 1));
    for warnings in [twice.multi_threaded_warnings(), twice.single_threaded_warnings()] {
        let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["`seeds` is `a:1`: it is named more than once; it counts once"]);
    }
}

#[test]
fn more_seeds_than_max_servers_are_refused() {
    let refused = changed(Options::new(seeds(3)), |own| own.max_servers = 2);
    check_refused(&refused, "maxServers", "2");
    check_accepted(&changed(Options::new(seeds(2)), |own| own.max_servers = 2));
}

#[test]
fn the_default_read_preference_is_validated() {
    let with = |seconds| {
        let limit = Duration::from_secs(seconds);
        one_with(|own| own.read_preference = ReadPreference::default().with_max_staleness(limit))
    };
    check_refused(&with(120), "maxStalenessSeconds", "120");
    check_accepted(&with(0));
}

#[test]
fn app_names_above_128_bytes_are_refused() {
    // The limit is in bytes (B-28).
    check_accepted(&one_with(|own| own.app_name = Some("a".repeat(128).into())));
    let refused = one_with(|own| own.app_name = Some("a".repeat(129).into()));
    check_refused(&refused, "appname", &"a".repeat(129));
    // This name has 128 characters, but 129 bytes.
    let name = "a".repeat(127) + "ü";
    check_refused(&one_with(|own| own.app_name = Some(name.clone().into())), "appname", &name);
}

#[test]
fn negative_or_reversed_wire_versions_are_refused() {
    // Programs may change the supported wire versions.
    let with = |min, max| one_with(|own| own.wire_versions = WireVersions { min, max });
    check_accepted(&with(0, 0));
    check_accepted(&with(2, 25));
    check_refused(&with(8, 7), "wireVersions", "8..=7");
    check_refused(&with(-1, 7), "wireVersions", "-1..=7");
}

#[test]
fn an_empty_replica_set_name_is_refused() {
    check_refused(&one_with(|own| own.replica_set = Some("".into())), "replicaSet", "");
}
