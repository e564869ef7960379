use sdam_core::{
    options::{ConfigError, Credential, Options},
    uri_options::Secret,
};

use crate::authenticator;

/// Returns the error of a connection string, of one of its parts, or of the authentication.
fn refusal(uri: &str) -> Option<ConfigError> {
    Options::parse(uri)
        .and_then(|options| authenticator(&options))
        .err()
}

#[test]
fn the_official_connection_strings_have_the_official_credentials() {
    // T-20, T-21
    // Authentication: "connection-string.json", the mechanisms that are supported here.
    let check = |uri: &str, expected: [Option<&str>; 3], source: &str| {
        let options = Options::parse(uri).unwrap();
        let credential = options.credential.as_ref().unwrap();
        let password = credential.password.as_ref().map(Secret::expose);
        let user = credential.user.as_deref();
        assert_eq!(
            [user, password, credential.mechanism.as_deref()],
            expected,
            "{uri}"
        );
        assert_eq!(credential.source(), source, "{uri}");
        assert!(authenticator(&options).unwrap().is_some(), "{uri}");
    };
    let with = |mechanism| [Some("user"), Some("password"), mechanism];
    check("mongodb://user:password@localhost", with(None), "admin");
    check("mongodb://user:password@localhost/foo", with(None), "foo");
    check(
        "mongodb://user:password@localhost/foo?authSource=bar",
        with(None),
        "bar",
    );
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let uri =
            |rest| format!("mongodb://user:password@localhost/{rest}authMechanism={mechanism}");
        check(&uri("?"), with(Some(mechanism)), "admin");
        check(&uri("foo?"), with(Some(mechanism)), "foo");
        check(&uri("foo?authSource=bar&"), with(Some(mechanism)), "bar");
    }
    let plain =
        |rest| format!("mongodb://user:password@localhost/{rest}tls=true&authMechanism=PLAIN");
    check(&plain("?"), with(Some("PLAIN")), "$external");
    check(&plain("foo?"), with(Some("PLAIN")), "foo");
    check(&plain("foo?authSource=bar&"), with(Some("PLAIN")), "bar");
    let name = "CN=myName,OU=myOrgUnit,O=myOrg,L=myLocality,ST=myState,C=myCountry";
    let encoded = name.replace('=', "%3D").replace(',', "%2C");
    for rest in ["?", "foo?", "?authSource=$external&"] {
        let x509 = Some("MONGODB-X509");
        let uri = format!("mongodb://{encoded}@localhost/{rest}authMechanism=MONGODB-X509");
        check(&uri, [Some(name), None, x509], "$external");
        let uri = format!("mongodb://localhost/{rest}authMechanism=MONGODB-X509");
        check(&uri, [None, None, x509], "$external");
    }
}

#[test]
fn database_and_auth_source_do_not_ask_for_authentication() {
    // T-22
    for uri in [
        "mongodb://a/",
        "mongodb://a/foo",
        "mongodb://a/?authSource=foo",
    ] {
        let options = Options::parse(uri).unwrap();
        assert_eq!(options.credential, None, "{uri}");
        assert!(authenticator(&options).unwrap().is_none(), "{uri}");
    }
}

#[test]
fn a_credential_that_its_mechanism_cannot_use_is_refused_with_the_option() {
    // T-21
    let check = |uri: &str, option: &str| {
        let error = refusal(uri).unwrap_or_else(|| panic!("{uri} is accepted"));
        assert_eq!(error.option(), option, "{uri}: {error}");
        assert!(!error.remedy().is_empty());
        assert!(!error.to_string().contains("pencil"), "{error}");
    };
    let a = "mongodb://user:pencil@a/?authMechanism";
    check("mongodb://user:pencil@a/foo?authSource=", "authSource");
    check("mongodb://a/admin?authSource=", "authSource");
    check("mongodb://@a/", "user name");
    check("mongodb://:@a/", "user name");
    check("mongodb://user@a/", "password");
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256", "PLAIN"] {
        check(
            &format!("mongodb://a/?authMechanism={mechanism}"),
            "user name",
        );
        check(
            &format!("mongodb://user@a/?authMechanism={mechanism}"),
            "password",
        );
        let uri = format!("{a}={mechanism}&tls=true&authMechanismProperties=SERVICE_NAME:x");
        check(&uri, "authMechanismProperties");
    }
    check(&format!("{a}=PLAIN"), "authMechanism");
    check(&format!("{a}=PLAIN&tls=false"), "authMechanism");
    check(&format!("{a}=MONGODB-X509"), "password");
    check(
        "mongodb://a/?authMechanism=MONGODB-X509&authSource=bar",
        "authSource",
    );
    let uri = "mongodb://a/?authMechanism=MONGODB-X509&authMechanismProperties=A:b";
    check(uri, "authMechanismProperties");
    check(
        "mongodb://user:pen%07cil@a/?authMechanism=SCRAM-SHA-256",
        "password",
    );
    check(
        "mongodb://us%00er:pencil@a/?authMechanism=PLAIN&tls=true",
        "authMechanism",
    );
    for mechanism in [
        "GSSAPI",
        "MONGODB-AWS",
        "MONGODB-OIDC",
        "MONGODB-CR",
        "scram-sha-1",
        "x",
    ] {
        check(&format!("{a}={mechanism}"), "authMechanism");
    }
    let error = refusal(&format!("{a}=MONGODB-OIDC")).unwrap();
    assert_eq!(
        error.to_string(),
        "`authMechanism` is `MONGODB-OIDC`: it is not supported; use SCRAM-SHA-256, SCRAM-SHA-1, \
         MONGODB-X509 or PLAIN, or pass an authenticator of your own to the pool",
    );
}

#[test]
fn a_credential_in_code_has_the_defaults_of_a_connection_string() {
    let check = |credential: Credential, source: &str| {
        assert_eq!(credential.source(), source);
        let options = Options::new(Vec::new()).with_credential(credential);
        assert!(authenticator(&options).unwrap().is_some());
    };
    check(Credential::new("user", ""), "admin");
    check(Credential::new("user", "password").with_source("db"), "db");
    check(Credential::x509(), "$external");
    let empty = Options::new(Vec::new()).with_credential(Credential::new("", "password"));
    assert_eq!(authenticator(&empty).unwrap_err().option(), "user name");
    let nowhere = Credential::new("user", "password").with_source("");
    let nowhere = Options::new(Vec::new()).with_credential(nowhere);
    assert_eq!(authenticator(&nowhere).unwrap_err().option(), "authSource");
}

#[test]
fn printing_options_or_an_authenticator_shows_no_password() {
    // T-23
    let options = Options::parse("mongodb://user:pencil@a/").unwrap();
    let authenticator = authenticator(&options).unwrap();
    let shown = format!("{options:?} {authenticator:?}");
    assert!(!shown.contains("pencil"), "{shown}");
    assert!(shown.contains("negotiated"), "{shown}");
}
