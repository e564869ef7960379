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
    // The specifications define these defaults (B-14 to B-21, B-30, B-31).
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
    assert!(options.retry_reads && options.retry_writes && !options.enable_overload_retargeting);
    assert_eq!(options.max_adaptive_retries, 2);
    let pool = options.pool;
    assert_eq!((pool.min_pool_size, pool.max_pool_size, pool.max_connecting), (0, 100, 2));
}

#[test]
fn options_decide_the_initial_topology_type() {
    // Unless an option determines the initial type, the client discovers the deployment (B-6, B-7).
    use TopologyType as T;
    for (direct, replica_set, load_balanced, explicit, expected) in [
        (None, None, false, None, T::Unknown),
        (Some(true), None, false, None, T::Single),
        (Some(false), None, false, None, T::Unknown),
        (Some(true), Some("rs"), false, None, T::Single),
        (Some(false), Some("rs"), false, None, T::ReplicaSetNoPrimary),
        (None, Some("rs"), false, None, T::ReplicaSetNoPrimary),
        (None, None, true, None, T::LoadBalanced),
        (Some(false), None, true, None, T::LoadBalanced),
        (None, None, true, Some(T::LoadBalanced), T::LoadBalanced),
        (None, None, false, Some(T::Single), T::Single),
        (None, None, false, Some(T::ReplicaSetNoPrimary), T::ReplicaSetNoPrimary),
        (None, None, false, Some(T::Sharded), T::Sharded),
        (None, None, false, Some(T::Unknown), T::Unknown),
    ] {
        let options = one_with(|own| {
            own.direct_connection = direct;
            own.replica_set = replica_set.map(Into::into);
            own.load_balanced = load_balanced;
            own.initial_topology_type = explicit;
        });
        assert_eq!(options.topology_type(), expected, "{options:?}");
        check_accepted(&options);
    }
    check_accepted(&Options::new(seeds(3)));
}

#[test]
fn options_that_determine_the_initial_topology_type_must_agree() {
    // Type Single needs exactly one seed, a set name needs a type that uses it (B-10), and an
    // explicit type must not contradict other options (B-13). Only discovery can find a primary,
    // and without `loadBalanced`, connections would not request a service id (B-7).
    use TopologyType as T;
    let two = |change: fn(&mut Options)| changed(Options::new(seeds(2)), change);
    check_refused(&two(|own| own.direct_connection = Some(true)), "directConnection", "true");
    check_accepted(&two(|own| own.direct_connection = Some(false)));
    let explicit = |change: fn(&mut Options), topology_type, is_accepted| {
        let mut options = one_with(change);
        options.initial_topology_type = Some(topology_type);
        if is_accepted {
            check_accepted(&options);
        } else {
            check_refused(&options, "initialTopologyType", topology_type.as_str());
        }
    };
    explicit(|own| own.seeds = seeds(2), T::Single, false);
    let direct: fn(&mut Options) = |own| own.direct_connection = Some(true);
    let indirect: fn(&mut Options) = |own| own.direct_connection = Some(false);
    let named: fn(&mut Options) = |own| own.replica_set = Some("rs".into());
    for topology_type in [T::Single, T::Sharded, T::ReplicaSetNoPrimary, T::Unknown] {
        let is_single = topology_type == T::Single;
        explicit(direct, topology_type, is_single);
        explicit(indirect, topology_type, !is_single);
        let is_named = is_single || topology_type == T::ReplicaSetNoPrimary;
        explicit(named, topology_type, is_named);
        explicit(|own| own.load_balanced = true, topology_type, false);
    }
    for topology_type in [T::ReplicaSetWithPrimary, T::LoadBalanced] {
        for change in [|_: &mut Options| (), direct, named] {
            explicit(change, topology_type, false);
        }
    }
}

#[test]
fn values_out_of_range_are_refused_and_the_limits_are_accepted() {
    let check = |change: &dyn Fn(&mut Options), refused: Option<(&str, &str)>| {
        let options = one_with(change);
        match refused {
            Some((option, value)) => check_refused(&options, option, value),
            None => check_accepted(&options),
        }
    };
    // The stable API has only version 1 (B-33).
    for version in ["1", "", "2", "1.0", " 1", "v1"] {
        let api = ServerApi { version: version.into(), ..ServerApi::v1() };
        let refused = (version != "1").then_some(("serverApi", version));
        check(&|own| own.server_api = Some(api.clone()), refused);
    }
    // The limit of names is in bytes (B-28); the last name has 128 characters.
    for (name, is_accepted) in
        [("a".repeat(128), true), ("a".repeat(129), false), ("a".repeat(127) + "ü", false)]
    {
        let refused = (!is_accepted).then_some(("appname", &*name));
        check(&|own| own.app_name = Some((&*name).into()), refused);
    }
    // Programs may change the supported wire versions.
    for (min, max, refused) in
        [(0, 0, None), (2, 25, None), (8, 7, Some("8..=7")), (-1, 7, Some("-1..=7"))]
    {
        let refused = refused.map(|value| ("wireVersions", value));
        check(&|own| own.wire_versions = WireVersions { min, max }, refused);
    }
    let seconds = Duration::from_secs;
    for (limit, refused) in [(0, None), (120, Some(("maxStalenessSeconds", "120")))] {
        let preference = ReadPreference::default().with_max_staleness(seconds(limit));
        check(&|own| own.read_preference = preference.clone(), refused);
    }
    let micros = Duration::from_micros;
    for (time, refused) in [(1_000, None), (999, Some("999µs")), (0, Some("0ns"))] {
        let refused = refused.map(|value| ("tcpUserTimeout", value));
        check(&|own| own.tcp_user_timeout = Some(micros(time)), refused);
    }
    for (floor, refused) in [(1_000, None), (999, Some("Detector { floor: 999µs }"))] {
        let refused = refused.map(|value| ("detector", value));
        check(&|own| own.detector = Some(Detector { floor: micros(floor) }), refused);
    }
    for (count, refused) in [(2, None), (3, Some(("maxServers", "2")))] {
        check(&|own| (own.seeds, own.max_servers) = (seeds(count), 2), refused);
    }
    check(&|own| own.replica_set = Some("".into()), Some(("replicaSet", "")));
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
