use sdam_core::options::{ConfigError, Credential, Options};

use crate::authenticator;

/// Returns the error from parsing a connection string or from creating its authenticator.
fn refusal(uri: &str) -> Option<ConfigError> {
    Options::parse(uri).and_then(|options| authenticator(&options)).err()
}

#[test]
fn a_credential_that_its_mechanism_cannot_use_is_refused_with_the_option() {
    // An invalid credential causes an error before any connection is opened. The error names the
    // option (T-21).
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
        check(&format!("mongodb://a/?authMechanism={mechanism}"), "user name");
        check(&format!("mongodb://user@a/?authMechanism={mechanism}"), "password");
        let uri = format!("{a}={mechanism}&tls=true&authMechanismProperties=SERVICE_NAME:x");
        check(&uri, "authMechanismProperties");
    }
    check(&format!("{a}=PLAIN"), "authMechanism");
    check(&format!("{a}=PLAIN&tls=false"), "authMechanism");
    check(&format!("{a}=MONGODB-X509"), "password");
    check("mongodb://a/?authMechanism=MONGODB-X509&authSource=bar", "authSource");
    let uri = "mongodb://a/?authMechanism=MONGODB-X509&authMechanismProperties=A:b";
    check(uri, "authMechanismProperties");
    check("mongodb://user:pen%07cil@a/?authMechanism=SCRAM-SHA-256", "password");
    check("mongodb://us%00er:pencil@a/?authMechanism=PLAIN&tls=true", "authMechanism");
    for mechanism in ["GSSAPI", "MONGODB-AWS", "MONGODB-OIDC", "MONGODB-CR", "scram-sha-1", "x"] {
        check(&format!("{a}={mechanism}"), "authMechanism");
    }
    let error = refusal(&format!("{a}=MONGODB-OIDC")).unwrap();
    assert_eq!(
        error.to_string(),
        "`authMechanism` is `MONGODB-OIDC`: it is not supported; use SCRAM-SHA-256, SCRAM-SHA-1, \
         MONGODB-X509 or PLAIN, or pass one of your own to `TopologyBuilder::authenticator`",
    );
}

pub(crate) fn with_credential(credential: Credential) -> Options {
    let mut options = Options::new(Vec::new());
    options.credential = Some(credential);
    options
}

#[test]
fn a_credential_in_code_has_the_defaults_of_a_connection_string() {
    let check = |credential: Credential, source: &str| {
        assert_eq!(credential.source(), source);
        let options = with_credential(credential);
        assert!(authenticator(&options).unwrap().is_some());
    };
    check(Credential::new("user", ""), "admin");
    let mut elsewhere = Credential::new("user", "password");
    elsewhere.source = Some("db".into());
    check(elsewhere, "db");
    check(Credential::x509(), "$external");
    let empty = with_credential(Credential::new("", "password"));
    assert_eq!(authenticator(&empty).unwrap_err().option(), "user name");
    let mut nowhere = Credential::new("user", "password");
    nowhere.source = Some("".into());
    let nowhere = with_credential(nowhere);
    assert_eq!(authenticator(&nowhere).unwrap_err().option(), "authSource");
}

#[test]
fn printing_options_or_an_authenticator_shows_no_password() {
    // Debug output must not contain a password (T-23).
    let options = Options::parse("mongodb://user:pencil@a/").unwrap();
    let authenticator = authenticator(&options).unwrap();
    let shown = format!("{options:?} {authenticator:?}");
    assert!(!shown.contains("pencil"), "{shown}");
    assert!(shown.contains("negotiated"), "{shown}");
}
