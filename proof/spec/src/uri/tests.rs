use super::*;

/// Each case has exactly one wrong expectation, and this difference must be detected.
#[test]
fn a_wrong_expectation_fails() {
    let right = json!({
        "description": "all of it",
        "uri": "mongodb://u:p@a:1/db?replicaSet=rs&maxPoolSize=5",
        "valid": true,
        "warning": false,
        "hosts": [{ "type": "hostname", "host": "a", "port": 1 }],
        "auth": { "username": "u", "password": "p", "db": "db" },
        "options": { "replicaset": "rs", "maxPoolSize": 5 },
    });
    let file = |case: &Json| json!({ "tests": [right, case] });
    assert_eq!(check_file(&file(&right)), Ok(()));

    let check = |field: &str, wrong: Json, message: &str| {
        let mut case = right.clone();
        case[field] = wrong;
        let error = check_file(&file(&case)).unwrap_err();
        assert!(error.contains(message), "{field}: {error}");
    };
    check("valid", json!(false), "is accepted");
    check("uri", json!("mongodb://a:0"), "is refused");
    check("warning", json!(true), "no warning");
    check("hosts", json!([]), "the hosts are [a:1]");
    check(
        "hosts",
        json!([{ "type": "hostname", "host": "b" }]),
        "unexpected host of type hostname: a:1",
    );
    check(
        "hosts",
        json!([{ "type": "ipv4", "host": "a", "port": 1 }]),
        "unexpected host of type hostname: a:1",
    );
    check(
        "hosts",
        json!([{ "type": "hostname", "host": "a" }]),
        "unexpected host of type hostname: a:1",
    );
    check("auth", json!({ "username": "u", "password": "x", "db": "db" }), "password");
    check("auth", json!({ "username": "u", "password": "p", "db": null }), "db");
    check("options", json!({ "replicaSet": "x" }), "replicaSet");
    check("options", json!({ "maxPoolSize": "5" }), "maxPoolSize");
    check("options", json!({ "minPoolSize": 0 }), "minPoolSize");
    check("novelty", json!(1), "unknown field `novelty`");
    check("hosts", json!("a"), "expected a sequence");
}

#[test]
fn a_file_without_cases_fails() {
    assert!(check_file(&json!({ "tests": [] })).is_err());
    assert!(check_file(&json!({})).is_err());
}
