//! User info, hosts, database, and what messages must not show.

use super::*;

#[test]
fn hosts_are_lower_cased_and_paths_are_not() {
    // B-3, B-5
    let check = |hosts: &str, expected: &[&str]| {
        let string = parse(&format!("mongodb://{hosts}"));
        let shown: Vec<_> = string.hosts().iter().map(ToString::to_string).collect();
        assert_eq!(shown, expected, "{hosts}");
    };
    check("A", &["a:27017"]);
    check("B:2,A,[FE80::1]", &["b:2", "a:27017", "[fe80::1]:27017"]);
    check("[::1]:9/", &["[::1]:9"]);
    check("%2Ftmp%2FMongo.sock", &["/tmp/Mongo.sock"]);
    check("rel%2Fa%20b.sock/db", &["rel/a b.sock"]);
    // No path without a slash.
    check("db.sock", &["db.sock:27017"]);
    check("BÜCHER.example.com", &["bÜcher.example.com:27017"]);
    check("a?tls=true", &["a:27017"]);
}

#[test]
fn a_host_counts_once() {
    let string = parse("mongodb://a,b,A:27017");
    assert_eq!(string.hosts().len(), 2);
    assert_eq!(warned(&string), ["host"]);
    let options = parse("mongodb://a,a/?directConnection=true").into_options();
    assert_eq!(options.unwrap().topology_type(), TopologyType::Single);
}

#[test]
fn what_is_no_connection_string_is_refused_by_the_part_that_is_wrong() {
    for text in [
        "",
        "a",
        "mongodb:/a",
        "mongo://a",
        "MONGODB://a",
        "://",
        "mongodb+srv:a",
    ] {
        check_refused(text, "connection string");
    }
    for hosts in [
        "",
        "/",
        "?a=b",
        "a,",
        ",a",
        "a,,b",
        "a:",
        "a:0",
        "a:65536",
        "a:b",
        "a::1",
        "[::1",
        "[a]",
        "a b",
        "a%",
        "a%2",
        "a%gg",
        "%ff",
        "%2Ftmp%2Fsocket",
        "%2F%00.sock",
        "/tmp/a.sock",
        "u@",
        "a%00",
    ] {
        check_refused(&format!("mongodb://{hosts}"), "host");
    }
    for database in [
        "/a/b", "/a%2Fb", "/a b", "/$a", "/a\"", "/a\\b", "/a%", "/a@b", "/%00",
    ] {
        check_refused(&format!("mongodb://a{database}"), "database");
    }
    check_refused("mongodb://@a", "user name");
    check_refused("mongodb://:p@a", "user name");
    check_refused("mongodb://u@v@a", "user name");
    check_refused("mongodb://u%x@a", "user name");
    check_refused("mongodb://u:p:q@a", "password");
    check_refused("mongodb://u:%@a", "password");
    check_refused("mongodb://u:%ff@a", "password");
}

#[test]
fn user_password_and_database_are_decoded() {
    let check = |text: &str, user, password, database| {
        let string = parse(text);
        assert_eq!(string.user(), user, "{text}");
        assert_eq!(string.password().map(Secret::expose), password, "{text}");
        assert_eq!(string.database(), database, "{text}");
    };
    check("mongodb://a", None, None, None);
    check("mongodb://a/?w=1", None, None, None);
    check("mongodb://u@a/b", Some("u"), None, Some("b"));
    check("mongodb://u:@a", Some("u"), Some(""), None);
    check(
        "mongodb://%40%3A:%2f%25%3f@a/x%2Cy.z",
        Some("@:"),
        Some("/%?"),
        Some("x,y.z"),
    );
}

#[test]
fn the_auth_source_follows_from_option_mechanism_and_database() {
    let check = |text: &str, expected| assert_eq!(parse(text).auth_source(), expected, "{text}");
    check("mongodb://u@a", "admin");
    check("mongodb://u@a/db", "db");
    check("mongodb://u@a/db?authSource=other", "other");
    check("mongodb://u@a/db?authMechanism=SCRAM-SHA-256", "db");
    check("mongodb://u@a/?authMechanism=PLAIN", "$external");
    check("mongodb://u@a/db?authMechanism=PLAIN", "db");
    for mechanism in ["GSSAPI", "MONGODB-AWS", "MONGODB-OIDC", "MONGODB-X509"] {
        let text = format!("mongodb://u@a/db?authMechanism={mechanism}");
        check(&text, "$external");
    }
}

#[test]
fn no_message_shows_a_piece_of_a_password() {
    let check = |text: &str| {
        let shown = match ConnectionString::parse(text) {
            Ok(string) => {
                let warnings: Vec<_> = string.warnings().iter().map(ToString::to_string).collect();
                let options = string.clone().into_options();
                format!("{string:?} {warnings:?} {options:?}")
            }
            Err(error) => format!("{error} {error:?}"),
        };
        let shown = shown.to_ascii_lowercase();
        assert!(
            !shown.contains("qx7") && !shown.contains("zk9"),
            "{text} gives {shown}"
        );
    };
    let separators = [
        "", "/", "?", "&", "=", ",", ":", "@", "#", "%", "%zz", "%2F", ";", "[", "]", "//", "/?",
        "?&", "@/", "/@", "?@", "@?", ":@",
    ];
    for first in separators {
        for second in separators {
            let password = format!("Qx7{first}Zk9{second}Qx7");
            check(&format!("mongodb://u:{password}@h"));
            check(&format!("mongodb://u:{password}@h/db?replicaSet=rs"));
            check(&format!("mongodb+srv://u:{password}@h.example.com/db"));
            check(&format!("mongo://u:{password}@h"));
        }
    }
    check("mongodb://u:Qx7?x=Zk9@h");
    // The host is forgotten.
    check("mongodb://u:Qx7");
    check("mongodb+srv://u:Qx7");
    // Options that are secrets, also under a misspelled name.
    check("mongodb://a/?tlsCertificateKeyFilePassword=Qx7");
    check("mongodb://a/?tlsCertificateKeyFilePassword=Qx7&tlsCertificateKeyFilePassword=Zk9");
    check("mongodb://a/?proxyHost=b&proxyUsername=c&proxyPassword=Qx7");
    check("mongodb://a/?proxyHost=b&proxyPassword=Qx7&proxyPassword=Zk9");
    check("mongodb://a/?authMechanismProperties=AWS_SESSION_TOKEN:Qx7");
    check("mongodb://a/?authMechanismProperties=AWS_SESSION_TOKEN:Qx7,Zk9");
    check("mongodb://a/?passwort=Qx7");
}

#[test]
fn no_text_makes_the_parser_panic() {
    let pieces = [
        "mongodb://",
        "mongodb+srv://",
        "a",
        "ü",
        ":",
        "@",
        "/",
        "?",
        "&",
        "=",
        ",",
        "%",
        "%2F",
        "%ff",
        "[",
        "]",
        "::1",
        "27017",
        "-1",
        ".sock",
        "tls",
        "ssl",
        "true",
        "false",
        "w",
        "replicaSet",
        "readPreferenceTags",
        "dc:ny",
        "srvMaxHosts",
        "loadBalanced",
        "proxyHost",
        "authMechanismProperties",
        "9223372036854775808",
        "connectTimeoutMS",
        "\0",
        " ",
    ];
    let mut rng = Rng::new(1);
    let mut valid = 0;
    for _ in 0..20_000 {
        let mut text = String::from("mongodb://a/?");
        if rng.below(2) == 0 {
            text.clear();
        }
        for _ in 0..rng.below(12) {
            text.push_str(pieces[rng.below(pieces.len() as u64) as usize]);
        }
        if let Ok(string) = ConnectionString::parse(&text) {
            valid += 1;
            let again = format!("{string:?}");
            assert!(!again.is_empty());
            let warned: Vec<String> = warned(&string).into_iter().map(Into::into).collect();
            if let Ok(options) = string.into_options()
                && let Err(error) = options.validate()
            {
                // Only what guards something is a warning first and an error then.
                assert!(
                    warned.iter().any(|name| name == error.option()),
                    "{text}: {error}"
                );
            }
        }
    }
    assert!(valid > 500, "only {valid} texts were valid");
}

#[test]
fn the_work_is_bounded_by_the_length_of_the_text() {
    // Quadratic work would take minutes.
    let many = |piece: &dyn Fn(usize) -> String| -> String {
        (0..100_000).rev().map(piece).collect::<Vec<_>>().join(",")
    };
    let hosts = many(&|index| format!("h{index}"));
    assert!(ConnectionString::parse(&format!("mongodb://{hosts}")).is_err());
    let tags = many(&|index| format!("k{index}:v"));
    let text = format!("mongodb://a/?readPreference=nearest&readPreferenceTags={tags}");
    let sets = parse(&text)
        .into_options()
        .unwrap()
        .read_preference
        .tag_sets;
    assert_eq!(sets[0].iter().len(), 100_000);
    let text = format!("mongodb://a/?{}", "x=&".repeat(100_000));
    assert_eq!(parse(&text).warnings().len(), 100_000);
}
