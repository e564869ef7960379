//! Tests of the options: valid, invalid and unknown ones.

use super::*;
use crate::read_preference::TagSet;

/// Asserts that `options` are accepted without warnings, and returns the result.
#[track_caller]
fn accepted(options: &str) -> Options {
    let text = format!("mongodb://a/?{options}");
    let string = parse(&text);
    assert_eq!(string.warnings(), [], "{text}");
    string.into_options().unwrap()
}

/// Asserts that each of `pairs` is ignored with a warning that names it.
#[track_caller]
fn check_ignored(pairs: &[&str]) {
    for pair in pairs {
        let string = parse(&format!("mongodb://a/?{pair}"));
        let (name, value) = pair.split_once('=').unwrap();
        let [warning] = string.warnings() else {
            panic!("{pair}: {:?}", string.warnings());
        };
        assert_eq!((warning.option(), warning.value()), (name, value));
        assert_eq!(warning.consequence(), "the option is ignored", "{warning}");
        assert!(warning.to_string().contains(warning.reason()));
        assert_eq!(string.option(name), None, "{pair}");
    }
}

#[test]
fn unknown_keys_are_ignored_with_a_warning() {
    // The stable API version can be declared only in code, and `slaveOk` is not supported (B-33,
    // B-34, L-78).
    let string = parse("mongodb://a/?foo=1&serverApi=1&replicaSet=rs&waitQueueSize=1&slaveOk=true");
    assert_eq!(warned(&string), ["foo", "serverApi", "waitQueueSize", "slaveOk"]);
    assert_eq!(string.options().len(), 1);
    let options = string.into_options().unwrap();
    assert_eq!(options.server_api, None);
    assert_eq!(options.read_preference.mode, ReadMode::Primary);
}

#[test]
fn deprecated_names_are_accepted_with_a_warning_and_override_nothing() {
    // The current name takes precedence over deprecated ones (B-18, B-34).
    let check = |query: &str, name: &str, millis| {
        let string = parse(&format!("mongodb://a/?{query}"));
        assert!(!string.warnings().is_empty(), "{query}");
        let expected = Value::Duration(Duration::from_millis(millis));
        assert_eq!(string.option(name), Some(&expected), "{query}");
    };
    check("wtimeout=5", "wTimeoutMS", 5);
    check("wtimeout=5&wtimeoutMS=10", "wTimeoutMS", 10);
    check("wtimeoutMS=10&wtimeout=5", "wTimeoutMS", 10);
    check("wtimeoutMS=10&wtimeout=5&wtimeout=6", "wTimeoutMS", 10);
    check("secondaryAcceptableLatencyMS=5", "localThresholdMS", 5);
}

#[test]
fn times_are_whole_milliseconds() {
    // All options with a duration accept the same values (B-14, B-16 to B-19, B-21, B-30, B-32).
    let names = "connectTimeoutMS localThresholdMS serverSelectionTimeoutMS socketCheckIntervalMS socketTimeoutMS \
                 timeoutMS maxIdleTimeMS waitQueueTimeoutMS wTimeoutMS heartbeatFrequencyMS";
    for name in names.split(' ') {
        // This number does not fit into a signed 64-bit integer.
        let great = "9223372036854775808";
        for value in ["-1", "x", "1.5", "+1", "1e3", " 1", "--1", great] {
            check_ignored(&[&format!("{name}={value}")]);
        }
        let options = accepted(&format!("{name}=9223372036854775807"));
        assert_eq!(options.validate(), Ok(()));
        let zero = parse(&format!("mongodb://a/?{name}=0"));
        let is_heartbeat = name == "heartbeatFrequencyMS";
        assert_eq!(zero.warnings().is_empty(), !is_heartbeat, "{name}");
    }
}

#[test]
fn heartbeats_below_half_a_second_are_ignored_in_strings() {
    // If the value of an option is ignored, the option keeps its default (B-14).
    check_ignored(&["heartbeatFrequencyMS=499", "heartbeatFrequencyMS=-2"]);
    let options = parse("mongodb://a/?heartbeatFrequencyMS=499");
    let options = options.into_options().unwrap();
    assert_eq!(options.monitor_frequency(), Duration::from_secs(10));
    let options = accepted("heartbeatFrequencyMS=500");
    assert_eq!(options.monitor_frequency(), Duration::from_millis(500));
}

#[test]
fn every_discovery_and_selection_option_sets_its_field() {
    // All of these values differ from the defaults (B-9, B-14 to B-25, B-28).
    let options = accepted(
        "appname=app&connectTimeoutMS=1&directConnection=false&heartbeatFrequencyMS=502\
         &localThresholdMS=3&maxStalenessSeconds=90&readPreference=nearest\
         &readPreferenceTags=dc:ny&replicaSet=rs&serverMonitoringMode=poll\
         &serverSelectionTimeoutMS=4&serverSelectionTryOnce=false&socketCheckIntervalMS=5",
    );
    assert_eq!(options.app_name.as_deref(), Some("app"));
    assert_eq!(options.connect_timeout, Some(Duration::from_millis(1)));
    assert_eq!(options.direct_connection, Some(false));
    assert_eq!(options.heartbeat_frequency, Some(Duration::from_millis(502)));
    assert_eq!(options.local_threshold, Duration::from_millis(3));
    assert_eq!(options.read_preference.mode, ReadMode::Nearest);
    assert_eq!(options.read_preference.max_staleness, Some(Duration::from_secs(90)));
    assert_eq!(options.read_preference.tag_sets.len(), 1);
    assert_eq!(options.replica_set.as_deref(), Some("rs"));
    assert_eq!(options.server_monitoring_mode, ServerMonitoringMode::Poll);
    assert_eq!(options.server_selection_timeout, Duration::from_millis(4));
    assert_eq!(options.server_selection_try_once, Some(false));
    assert_eq!(options.socket_check_interval, Duration::from_millis(5));
    assert!(accepted("loadBalanced=true").load_balanced);
}

#[test]
fn tag_sets_keep_their_order_and_case() {
    // Each `readPreferenceTags` is one tag set (B-24, L-18).
    let tags = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<TagSet>();
    let options = accepted(
        "readPreference=secondary&readPreferenceTags=dc:NY,rack:1&readPreferenceTags=dc:ny\
         &readPreferenceTags=",
    );
    assert_eq!(
        options.read_preference.tag_sets,
        [tags(&[("dc", "NY"), ("rack", "1")]), tags(&[("dc", "ny")]), tags(&[])]
    );
    check_ignored(&[
        "readPreferenceTags=dc",
        "readPreferenceTags=dc:ny,rack",
        "readPreferenceTags=:ny",
        "readPreferenceTags=dc:ny,",
        "readPreferenceTags=,",
    ]);
}

#[test]
fn max_staleness_is_whole_seconds_or_minus_one() {
    // The parser accepts a limit that is too small, and selections reject it (B-25, B-26).
    let limit = |query: &str| accepted(query).read_preference.max_staleness;
    let secondary =
        |seconds: i64| format!("readPreference=secondary&maxStalenessSeconds={seconds}");
    assert_eq!(limit(&secondary(-1)), None);
    assert_eq!(limit(&secondary(0)), Some(Duration::ZERO));
    assert_eq!(limit(&secondary(1)), Some(Duration::from_secs(1)));
    assert_eq!(limit("maxStalenessSeconds=-1"), None);
    check_ignored(&["maxStalenessSeconds=-2", "maxStalenessSeconds=x"]);
    check_refused("mongodb://a/?maxStalenessSeconds=120", "maxStalenessSeconds");
    let text = "mongodb://a/?maxStalenessSeconds=1&readPreference=primary";
    check_refused(text, "maxStalenessSeconds");
    check_refused("mongodb://a/?readPreferenceTags=dc:ny", "readPreferenceTags");
    assert_eq!(accepted("readPreferenceTags=").validate(), Ok(()));
}

#[test]
fn pools_and_operations_have_their_options() {
    // The options of pools and operations are set as they were given (B-17, B-30, B-31, B-32).
    let options = accepted(
        "maxPoolSize=0&minPoolSize=3&maxIdleTimeMS=4&maxConnecting=5&waitQueueTimeoutMS=6\
         &socketTimeoutMS=7&timeoutMS=0&enableOverloadRetargeting=true&maxAdaptiveRetries=0",
    );
    let pool = &options.pool;
    assert_eq!((pool.max_pool_size, pool.min_pool_size, pool.max_connecting), (0, 3, 5));
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!((pool.max_idle_time, pool.wait_queue_timeout), (millis(4), millis(6)));
    assert_eq!((options.socket_timeout, options.timeout), (millis(7), millis(0)));
    assert!(options.enable_overload_retargeting);
    assert_eq!(options.max_adaptive_retries, 0);
    assert!(options.retry_reads && options.retry_writes);
    let options = accepted("retryReads=false&retryWrites=false&socketTimeoutMS=0");
    assert!(!options.retry_reads && !options.retry_writes);
    assert_eq!((options.socket_timeout, options.timeout), (None, None));
    assert!(!options.enable_overload_retargeting);
    assert_eq!(options.max_adaptive_retries, 2);
    check_ignored(&[
        "maxConnecting=0",
        "maxConnecting=-1",
        "maxPoolSize=-1",
        "minPoolSize=2147483648",
        "maxAdaptiveRetries=-5",
    ]);
}

#[test]
fn concerns_compression_and_authentication_have_their_options() {
    let options = accepted(
        "w=majority&journal=true&wTimeoutMS=8&readConcernLevel=local&compressors=ZSTD,zlib\
         &zlibCompressionLevel=-1&authMechanism=GSSAPI&authSource=$external\
         &authMechanismProperties=SERVICE_NAME:a,X:b:c",
    );
    assert_eq!(options.w, Some(Acknowledgment::Named("majority".into())));
    assert_eq!((options.journal, options.w_timeout), (Some(true), Some(Duration::from_millis(8))));
    assert_eq!(options.read_concern_level.as_deref(), Some("local"));
    assert_eq!(options.compressors, ["zstd".into(), "zlib".into()]);
    assert_eq!(options.zlib_compression_level, Some(-1));
    let credential = options.credential.unwrap();
    assert_eq!(credential.mechanism.as_deref(), Some("GSSAPI"));
    assert_eq!(credential.source(), "$external");
    let properties = credential.properties.unwrap();
    assert_eq!(properties.value("SERVICE_NAME"), Some("a"));
    assert_eq!(properties.value("X"), Some("b:c"));
    assert_eq!(accepted("w=3").w, Some(Acknowledgment::Nodes(3)));
    check_ignored(&["w=-1", "w=2147483648", "zlibCompressionLevel=10", "compressors=lz4"]);
}

#[test]
fn the_database_is_the_default_source_of_users() {
    let string = parse("mongodb://user:pw@a/db");
    assert_eq!((string.database(), string.auth_source()), (Some("db"), "db"));
    assert_eq!(parse("mongodb://a").database(), None);
}

#[test]
fn unknown_compressors_are_left_out() {
    let string = parse("mongodb://a/?compressors=lz4,zlib");
    assert_eq!(warned(&string), ["compressors"]);
    assert_eq!(string.option("compressors"), Some(&Value::List(vec!["zlib".into()].into())));
}

#[test]
fn names_of_mechanism_properties_ignore_case() {
    // Both spellings mean the same property (B-40).
    let options = accepted(
        "authMechanism=GSSAPI&authMechanismProperties=service_name:a,Service_Name:b,TOKEN_RESOURCE:mongodb://foo",
    );
    let properties = options.credential.unwrap().properties.unwrap();
    for name in ["SERVICE_NAME", "service_name", "sErViCe_NaMe"] {
        assert_eq!(properties.value(name), Some("b"), "{name}");
    }
    let all = [("SERVICE_NAME", "b"), ("TOKEN_RESOURCE", "mongodb://foo")];
    assert!(properties.iter().eq(all));
    // Values end at a comma, so only code can set a value that contains one.
    let string = parse("mongodb://a/?authMechanismProperties=TOKEN_RESOURCE:a,b");
    assert_eq!(warned(&string), ["authMechanismProperties"]);
    assert_eq!(string.credential(), None);
    let properties = Properties::new([("token_resource", "a,b")]);
    assert_eq!(properties.value("TOKEN_RESOURCE"), Some("a,b"));
}
