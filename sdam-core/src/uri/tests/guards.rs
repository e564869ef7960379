//! Options that protect the data or the route of connections.

use super::*;
use crate::uri_options::{HIDDEN, Kind, Repetition, Row, rows};

/// Returns values that are invalid for the option in `row`.
fn malformed(row: &Row) -> &'static [&'static str] {
    if ["proxyUsername", "proxyPassword"].contains(&row.name) {
        // An empty value means the same as no value.
        return &[];
    }
    match row.kind {
        Kind::Flag => FLAGS,
        Kind::Number(_) => &["", "x", "-1", "0", "65536", "1.5", " 1"],
        // Any non-empty value is a valid path, name or password.
        _ => &[""],
    }
}

/// Values that are not valid flags.
const FLAGS: &[&str] = &["", "1", "0", "True", "TRUE", "yes", "on", "x", " true", "truetrue"];

/// Parses an SRV string with these options, and resolves it without look-ups. Only an SRV string
/// may contain every option.
fn resolve(options: &str) -> (ConnectionString, Options) {
    let string = parse(&format!("mongodb+srv://b.example.com/?{options}"));
    let options = resolved(string.clone(), &[]).unwrap().into_options();
    (string, options.unwrap())
}

/// Asserts that the parser warns of `pair`, and that no topology starts with it.
#[track_caller]
fn check_unguarded(pair: &str) {
    let (string, options) = resolve(pair);
    let (name, value) = pair.split_once('=').unwrap();
    assert!(warned(&string).contains(&name), "{pair}");
    let error = options.validate().expect_err(pair);
    assert_eq!(error.option(), name);
    assert!([value, "", HIDDEN].contains(&error.value()), "{error}");
    assert!(!error.reason().is_empty() && !error.remedy().is_empty());
    let warnings = string.warnings().iter();
    for warning in warnings.filter(|warning| warning.option() == name) {
        assert!(warning.consequence().contains("no topology starts"));
    }
}

#[test]
fn every_tls_and_proxy_option_is_marked_as_guarding() {
    for row in rows() {
        let guards = ["tls", "proxy"].iter().any(|it| row.name.starts_with(it));
        assert_eq!(row.guards, guards, "{}", row.name);
        if row.guards {
            let lax = [Repetition::Warning, Repetition::List];
            assert!(!lax.contains(&row.repetition), "{}", row.name);
        }
    }
}

#[test]
fn a_malformed_guarding_option_fails_validation() {
    // If an invalid option were ignored, connections would be less protected (V-3).
    let mut checked = 0;
    for row in rows().iter().filter(|row| row.guards) {
        for value in malformed(row) {
            check_unguarded(&format!("{}={value}", row.name));
            checked += 1;
        }
    }
    for value in FLAGS {
        check_unguarded(&format!("ssl={value}"));
    }
    assert!(checked > 70, "{checked}");
    // A second, valid value does not repair the first.
    for options in ["tls=1&tls=true", "tls=false&ssl=1", "TLS=1", "ssl=1&tls=false"] {
        assert!(resolve(options).1.validate().is_err(), "{options}");
    }
}

#[test]
fn an_unknown_option_with_a_guarding_prefix_fails_validation() {
    // An unknown option whose name begins like these was probably meant to protect connections
    // (V-3).
    for name in ["sslVerifyCertificate", "SSL_CA_CERTS", "tlsMode", "proxyhostname"] {
        check_unguarded(&format!("{name}=x"));
    }
    // Other unknown options do not protect connections.
    for name in ["foo", "ss", "xtls", "\u{fc}tls", "pr"] {
        let options = Options::parse(&format!("mongodb://a/?{name}=x")).unwrap();
        assert_eq!(options.validate(), Ok(()), "{name}");
    }
}

#[test]
fn two_different_values_of_a_guarding_option_are_refused() {
    // If a repeated option has different values, it is unclear which one is meant (V-3).
    for row in rows().iter().filter(|row| row.guards) {
        let pair = match row.kind {
            Kind::Flag => ["true", "false"],
            Kind::Number(_) => ["1", "2"],
            _ => ["a.b", "c.d"],
        };
        let [first, second] = pair.map(|value| format!("{}={value}", row.name));
        let text = format!("mongodb+srv://a.example.com/?{first}&{second}");
        check_refused(&text, row.name);
    }
    check_refused("mongodb://a/?tls=true&ssl=false", "tls");
    check_refused("mongodb://a/?ssl=true&tls=false", "tls");
}

#[test]
fn every_option_of_tls_enables_tls() {
    // Every TLS option implies `tls=true` (V-2).
    let tls = |options: &str| {
        let options = Options::parse(&format!("mongodb://a/?{options}")).unwrap();
        assert_eq!(options.validate(), Ok(()));
        options.tls
    };
    for options in ["", "tls=false", "ssl=false"] {
        assert_eq!(tls(options), None, "{options}");
    }
    for options in ["tls=true", "ssl=true", "tlsInsecure=false"] {
        assert_eq!(tls(options), Some(TlsOptions::default()), "{options}");
    }
    let given = tls("tlsCAFile=ca&tlsCertificateKeyFile=key").unwrap();
    assert_eq!(given.ca_file.as_deref(), Some("ca"));
    assert_eq!(given.certificate_key_file.as_deref(), Some("key"));
    let insecure = tls("tlsInsecure=true").unwrap();
    assert!(insecure.allow_invalid_certificates && insecure.allow_invalid_hostnames);
    let names = tls("tlsAllowInvalidHostnames=true").unwrap();
    assert!(names.allow_invalid_hostnames && !names.allow_invalid_certificates);
    let (_, options) = resolve("");
    assert_eq!(options.tls, Some(TlsOptions::default()), "an SRV string");
}

#[test]
fn an_option_of_tls_without_tls_fails_validation() {
    // With `tls=false`, any other TLS option would have no effect (V-2).
    for option in ["tlsCAFile=a", "tlsInsecure=true", "tlsCertificateKeyFile=b"] {
        for options in [format!("tls=false&{option}"), format!("{option}&ssl=false")] {
            let options = Options::parse(&format!("mongodb://a/?{options}")).unwrap();
            let error = options.validate().unwrap_err();
            assert_eq!((error.option(), error.value()), ("tls", "false"));
        }
    }
}

#[test]
fn the_password_of_a_key_fails_validation_with_the_command_that_decrypts_the_key() {
    // Encrypted keys are not supported (V-7).
    for (key, file) in [("&tlsCertificateKeyFile=client.pem", "client.pem"), ("", "FILE")] {
        let text = format!("mongodb://a/?tlsCertificateKeyFilePassword=Qx7{key}");
        let error = Options::parse(&text).unwrap().validate().unwrap_err();
        let expected = format!(
            "`tlsCertificateKeyFilePassword` is `<hidden>`: encrypted keys are not supported; \
             decrypt the key by `openssl pkey -in {file} -out key.pem`, put it into \
             `tlsCertificateKeyFile` in place of the encrypted one, and leave the password out"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn options_that_leave_connections_open_to_attack_cause_a_warning() {
    for (options, expected) in [
        ("tls=true", &[][..]),
        ("tlsInsecure=true", &["tlsAllowInvalidCertificates"]),
        ("tlsAllowInvalidHostnames=true", &["tlsAllowInvalidHostnames"]),
        // Options that explicitly enable OCSP cause a warning (B-41).
        ("tlsDisableOCSPEndpointCheck=true", &[]),
        ("tlsDisableOCSPEndpointCheck=false", &["tlsDisableOCSPEndpointCheck"]),
        ("tlsDisableCertificateRevocationCheck=true", &[]),
        ("tlsDisableCertificateRevocationCheck=false", &["tlsDisableCertificateRevocationCheck"]),
    ] {
        let options = Options::parse(&format!("mongodb://a/?{options}")).unwrap();
        for warnings in [options.multi_threaded_warnings(), options.single_threaded_warnings()] {
            let names: Vec<_> = warnings.iter().map(Warning::option).collect();
            assert_eq!(names, expected);
        }
    }
}
