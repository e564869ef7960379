//! SRV strings, without look-ups.

use super::*;

const HOSTS: [&str; 3] = ["a.test.example.com", "b.test.example.com", "c.test.example.com"];

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
    // The connection string takes precedence over the TXT record (N-9, B-38).
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
