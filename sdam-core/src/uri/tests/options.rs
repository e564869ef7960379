//! Tests of the options: valid, invalid and unknown ones, and those of SRV strings.

use super::*;

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
fn tag_sets_keep_their_order_and_case() {
    // Each `readPreferenceTags` is one tag set (B-24, L-18).
    let options = accepted(
        "readPreference=secondary&readPreferenceTags=dc:NY,rack:1&readPreferenceTags=dc:ny\
         &readPreferenceTags=",
    );
    let sets: Vec<_> = options.read_preference.tag_sets.iter().map(ToString::to_string).collect();
    assert_eq!(sets, ["{dc: NY, rack: 1}", "{dc: ny}", "{}"]);
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
fn options_and_values_that_no_official_file_has_set_their_fields() {
    let options = accepted(
        "socketCheckIntervalMS=5&waitQueueTimeoutMS=6&retryReads=false&retryWrites=false\
         &journal=true&compressors=ZSTD,zlib&zlibCompressionLevel=-1",
    );
    assert_eq!(options.socket_check_interval, Duration::from_millis(5));
    assert_eq!(options.pool.wait_queue_timeout, Some(Duration::from_millis(6)));
    assert!(!options.retry_reads && !options.retry_writes);
    assert_eq!(options.journal, Some(true));
    assert_eq!(options.compressors, ["zstd".into(), "zlib".into()]);
    assert_eq!(options.zlib_compression_level, Some(-1));
    let zero = accepted("socketTimeoutMS=0&maxIdleTimeMS=0&waitQueueTimeoutMS=0&timeoutMS=0");
    let limits = [zero.socket_timeout, zero.pool.max_idle_time, zero.pool.wait_queue_timeout];
    assert_eq!((limits, zero.timeout), ([None; 3], Some(Duration::ZERO)));
    check_ignored(&[
        "maxPoolSize=-1",
        "minPoolSize=2147483648",
        "w=-1",
        "w=2147483648",
        "zlibCompressionLevel=10",
        "compressors=lz4",
    ]);
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

#[test]
fn into_options_fails_before_the_look_up() {
    let error = Options::parse("mongodb+srv://h.example.com").unwrap_err();
    assert_eq!(error.option(), "mongodb+srv");
    assert_eq!(error.value(), "h.example.com");
    assert!(error.remedy().contains("ConnectionString::resolved"));
}

#[test]
fn a_service_name_has_single_hyphens_between_words_and_a_letter() {
    let name = |name: &str| {
        let string = parse(&format!("mongodb+srv://h.example.com/?srvServiceName={name}"));
        string.srv().unwrap().service.clone()
    };
    for good in ["a", "a-1", "customname", &"a".repeat(62)] {
        assert_eq!(&*name(good), good);
    }
    for bad in ["1", "-a", "a-", "a--b", "a_b", &"a".repeat(63)] {
        assert_eq!(&*name(bad), "mongodb", "{bad}");
    }
    assert_eq!(parse("mongodb://a").srv(), None);
}

#[test]
fn a_txt_record_sets_only_options_that_the_string_does_not() {
    // The connection string takes precedence over the TXT record, which may be empty (N-9, B-38).
    let resolve = |query: &str, txt| {
        let string = parse(&format!("mongodb+srv://h.example.com/{query}"));
        resolved(string, &[txt]).unwrap().into_options().unwrap()
    };
    assert!(!resolve("?loadBalanced=false", "loadBalanced=true").load_balanced);
    assert!(!resolve("", "").load_balanced);
}
