//! SRV strings, without look-ups.

use super::*;

const HOSTS: [&str; 3] = [
    "a.test.example.com",
    "b.test.example.com",
    "c.test.example.com",
];

fn hosts(count: usize) -> Vec<ServerAddress> {
    let hosts = HOSTS.iter().take(count);
    hosts.map(|host| ServerAddress::new(host, 1)).collect()
}

/// Resolves `string` with these hosts and TXT records.
fn resolve(
    string: ConnectionString,
    hosts: Vec<ServerAddress>,
    txt: &[&str],
) -> Result<ConnectionString, ConfigError> {
    let records = SrvRecords::new(hosts, Duration::from_secs(90));
    let txt: Vec<Box<str>> = txt.iter().map(|record| (*record).into()).collect();
    string.resolved(&records, &txt, &mut Rng::new(1))
}

#[test]
fn an_srv_string_with_a_port_several_hosts_or_no_ascii_name_is_refused() {
    // N-1, N-16
    for host in [
        "",
        "a.b.c,d.b.c",
        "a.b.c:27017",
        "a.b.c:",
        "[::1]",
        "%2Fa.sock",
        "a b",
        "h.b\u{fc}cher.example",
        "h.b%C3%BCcher.example",
    ] {
        check_refused(&format!("mongodb+srv://{host}"), "host");
    }
}

#[test]
fn srv_host_service_and_limit_are_kept() {
    // B-29, N-3, N-6
    let string = parse("mongodb+srv://Test.Example.COM./");
    let srv = string.srv().unwrap();
    assert_eq!(*srv, Srv::new("test.example.com"));
    assert_eq!(srv.query_name(), "_mongodb._tcp.test.example.com");
    assert_eq!(srv.max_hosts, 0);
    assert!(string.hosts().is_empty());

    let string = parse("mongodb+srv://u:p@h.example.com/db?srvServiceName=my-name&srvMaxHosts=2");
    let srv = string.srv().unwrap();
    assert_eq!(srv.query_name(), "_my-name._tcp.h.example.com");
    assert_eq!(srv.max_hosts, 2);
    assert_eq!(string.user(), Some("u"));
    assert_eq!(string.database(), Some("db"));
}

#[test]
fn no_option_replaces_the_domain() {
    // N-2, N-5
    let string = parse("mongodb+srv://h.example.com/?srvAllowedHostsSuffix=example.org");
    assert_eq!(warned(&string), ["srvAllowedHostsSuffix"]);
    assert_eq!(string.srv(), Some(&Srv::new("h.example.com")));
    let foreign = vec![ServerAddress::new("a.example.org", 1)];
    assert!(resolve(string, foreign, &[]).is_err());
}

#[test]
fn srv_options_are_refused_outside_an_srv_string() {
    // B-29
    for option in [
        "srvServiceName=x",
        "srvMaxHosts=2",
        "srvMaxHosts=0",
        "srvMaxHosts=x",
    ] {
        let (name, _) = option.split_once('=').unwrap();
        check_refused(&format!("mongodb://a/?{option}"), name);
    }
}

#[test]
fn invalid_srv_options_are_ignored_with_a_warning() {
    // B-29
    for option in [
        "srvMaxHosts=-1",
        "srvMaxHosts=x",
        "srvServiceName=a--b",
        "srvServiceName=-a",
        "srvServiceName=1",
        "srvServiceName=a.b",
    ] {
        let (name, _) = option.split_once('=').unwrap();
        let string = parse(&format!("mongodb+srv://h.example.com/?{option}"));
        assert_eq!(warned(&string), [name]);
        assert_eq!(string.srv(), Some(&Srv::new("h.example.com")), "{option}");
    }
    let long = "a".repeat(62);
    let text = format!("mongodb+srv://h.example.com/?srvServiceName={long}");
    assert_eq!(*parse(&text).srv().unwrap().service, *long);
    assert_eq!(warned(&parse(&(text + "a"))), ["srvServiceName"]);
}

#[test]
fn contradictory_options_are_refused_before_the_look_up() {
    // B-11, B-12, B-29
    let check = |options: &str, option: &str| {
        check_refused(&format!("mongodb+srv://h.example.com/?{options}"), option);
    };
    check("directConnection=true", "directConnection");
    check("srvMaxHosts=1&replicaSet=rs", "srvMaxHosts");
    check("srvMaxHosts=1&loadBalanced=true", "srvMaxHosts");
    check("loadBalanced=true&replicaSet=rs", "loadBalanced");
    for options in [
        "directConnection=false",
        "srvMaxHosts=0&replicaSet=rs",
        "srvMaxHosts=0&loadBalanced=true",
        "srvMaxHosts=1&loadBalanced=false",
    ] {
        parse(&format!("mongodb+srv://h.example.com/?{options}"));
    }
}

#[test]
fn an_srv_string_enables_tls_unless_it_is_turned_off() {
    // B-36, N-11
    let check = |query: &str, expected| {
        let string = parse(&format!("mongodb+srv://h.example.com/{query}"));
        assert_eq!(string.warnings(), []);
        let options = resolve(string, hosts(1), &[]).unwrap().into_options();
        assert_eq!(options.unwrap().tls.is_some(), expected);
    };
    check("", true);
    check("?tls=true", true);
    check("?tls=false", false);
    check("?ssl=false", false);
}

#[test]
fn into_options_fails_before_the_look_up() {
    let error = Options::parse("mongodb+srv://h.example.com").unwrap_err();
    assert_eq!(error.option(), "mongodb+srv");
    assert_eq!(error.value(), "h.example.com");
    assert!(error.remedy().contains("ConnectionString::resolved"));
}

#[test]
fn the_number_of_hosts_does_not_decide_the_topology_type() {
    // B-8, N-13
    let topology_type = |query: &str, count| {
        let string = parse(&format!("mongodb+srv://h.example.com/{query}"));
        let options = resolve(string, hosts(count), &[])?.into_options()?;
        assert_eq!(options.seeds, hosts(count));
        assert_eq!(options.srv.as_ref().unwrap().ttl, Duration::from_secs(90));
        Ok::<_, ConfigError>(options.topology_type())
    };
    assert_eq!(topology_type("", 1), Ok(TopologyType::Unknown));
    assert_eq!(topology_type("", 3), Ok(TopologyType::Unknown));
    assert_eq!(
        topology_type("?directConnection=false", 1),
        Ok(TopologyType::Unknown)
    );
    assert_eq!(
        topology_type("?replicaSet=rs", 3),
        Ok(TopologyType::ReplicaSetNoPrimary)
    );
    assert_eq!(
        topology_type("?loadBalanced=true", 1),
        Ok(TopologyType::LoadBalanced)
    );
    let error = topology_type("?loadBalanced=true", 2).unwrap_err();
    assert_eq!(error.option(), "loadBalanced");
}

#[test]
fn a_txt_record_sets_only_options_that_the_string_does_not() {
    // N-9, B-38
    let resolve = |query: &str, txt: &str| {
        let string = parse(&format!("mongodb+srv://h.example.com/{query}"));
        resolve(string, hosts(1), &[txt])
    };
    let string = resolve("", "authSource=thisDB&replicaSet=rs").unwrap();
    assert_eq!(string.auth_source(), "thisDB");
    let options = string.into_options().unwrap();
    assert_eq!(options.replica_set.as_deref(), Some("rs"));

    let string = resolve("?authSource=otherDB", "authSource=thisDB&replicaSet=rs").unwrap();
    assert_eq!(string.auth_source(), "otherDB");
    let string = resolve("?loadBalanced=false", "loadBalanced=true").unwrap();
    assert!(!string.into_options().unwrap().load_balanced);
    assert!(resolve("", "").is_ok());
}

#[test]
fn a_txt_record_with_other_options_is_refused() {
    // N-9
    for record in [
        "ssl=false",
        "tls=true",
        "socketTimeoutMS=500",
        "nonsense=1",
        "srvMaxHosts=1",
        "authSource",
        "authSource=%",
        "authSource=",
        "replicaSet=rs&authSource",
    ] {
        let string = parse("mongodb+srv://h.example.com");
        let error = resolve(string, hosts(1), &[record]).unwrap_err();
        assert!(
            error.option().starts_with("TXT record of h.example.com: "),
            "{record}: {error}"
        );
    }
}

#[test]
fn wrong_and_repeated_values_of_a_txt_record_warn_as_those_of_the_string_do() {
    // N-15
    let resolve = |query: &str, txt: &[&str]| {
        let string = parse(&format!("mongodb+srv://h.example.com/?{query}"));
        resolve(string, hosts(1), txt).unwrap()
    };
    for options in [
        "loadBalanced=x",
        "loadBalanced=",
        "replicaSet=",
        "replicaSet=a&replicaSet=b",
        "loadBalanced=false&LOADBALANCED=true",
        "loadBalanced=1&replicaSet=rs&authSource=db",
    ] {
        let expected = resolve(options, &[]);
        let string = resolve("", &[options]);
        assert!(string.options().eq(expected.options()), "{options}");
        let expected = expected.warnings().iter();
        let expected = expected.map(|warning| {
            let text = warning.to_string();
            text.replacen('`', "`TXT record of h.example.com: ", 1)
        });
        let warnings: Vec<_> = string.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings, expected.collect::<Vec<_>>());
        assert_eq!(warnings.len(), 1);
    }
    let string = resolve("loadBalanced=true", &["loadBalanced=x"]);
    let warned = &string.warnings()[0];
    assert_eq!(
        warned.to_string(),
        "`TXT record of h.example.com: loadBalanced` is `x`: it must be `true` or `false`; the \
         option is ignored",
    );
    assert!(string.into_options().unwrap().load_balanced);
}

#[test]
fn validation_includes_the_options_of_the_txt_record() {
    // N-10, B-12, B-29
    let check = |query: &str, record: &str, count, option: &str| {
        let string = parse(&format!("mongodb+srv://h.example.com/{query}"));
        let error = resolve(string, hosts(count), &[record]).unwrap_err();
        assert_eq!(error.option(), option, "{error}");
    };
    check("?srvMaxHosts=1", "replicaSet=rs", 1, "srvMaxHosts");
    check("?srvMaxHosts=1", "loadBalanced=true", 1, "srvMaxHosts");
    check("?replicaSet=rs", "loadBalanced=true", 1, "loadBalanced");
    check("", "loadBalanced=true", 2, "loadBalanced");
}

#[test]
fn several_txt_records_are_refused_and_none_is_fine() {
    // N-8
    let string = || parse("mongodb+srv://h.example.com");
    assert!(resolve(string(), hosts(1), &[]).is_ok());
    let error = resolve(string(), hosts(1), &["replicaSet=rs", "authSource=db"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`TXT records of h.example.com` is `2`: there is more than one; put all options into one \
         record",
    );
}

#[test]
fn hosts_are_validated_and_limited_to_srv_max_hosts() {
    // N-4, N-5, N-7
    let string = || parse("mongodb+srv://h.example.com/?srvMaxHosts=2");
    let resolved = resolve(string(), hosts(3), &[]).unwrap();
    assert_eq!(resolved.hosts().len(), 2);
    assert!(resolved.hosts().iter().all(|host| hosts(3).contains(host)));
    let error = resolve(string(), Vec::new(), &[]).unwrap_err();
    assert_eq!(error.reason(), "there is none");
    let foreign = vec![ServerAddress::new("a.example.org", 1)];
    let error = resolve(string(), foreign, &[]).unwrap_err();
    assert_eq!(error.value(), "a.example.org:1");
}
