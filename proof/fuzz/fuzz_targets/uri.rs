//! Checks, for arbitrary connection strings, that hosts are normalized, that the options match the
//! string, and that the password is never displayed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sdam_core::{address::ServerAddress, uri::ConnectionString};

/// The password in the connection strings. It is in lower case, because hosts are displayed in
/// lower case.
const PASSWORD: &str = "hunter2hunter2";

fuzz_target!(|text: &str| {
    check(text);
    check(&format!("mongodb://{text}"));
    check(&format!("mongodb://a/?{text}"));
    // Neither the results nor the error messages contain the password.
    if !smuggles_password(text) {
        for string in
            [format!("mongodb://u:{PASSWORD}@{text}"), format!("mongodb+srv://u:{PASSWORD}@{text}")]
        {
            let shown = show(&string);
            assert!(!shown.contains(PASSWORD), "{shown}");
        }
    }
});

/// Returns whether the input itself contains the password, perhaps in upper case or
/// percent-encoded. Fuzzers find such inputs.
fn smuggles_password(text: &str) -> bool {
    let mut decoded = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let digits = rest.get(..2).filter(|_| c == '%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(char::from(byte));
                rest = &rest[2..];
            }
            None => decoded.push(c),
        }
    }
    let spelled = |text: &str| text.to_lowercase().contains(PASSWORD);
    spelled(text) || spelled(&decoded)
}

fn check(text: &str) {
    let Ok(string) = ConnectionString::parse(text) else {
        return;
    };
    assert_eq!(show(text), show(text), "parsing depends on nothing but the text");
    for host in string.hosts() {
        assert_eq!(ServerAddress::parse(host.as_str()).as_ref(), Ok(host));
    }
    let hosts = string.hosts().to_vec();
    let is_srv = string.srv().is_some();
    assert_eq!(is_srv, hosts.is_empty());
    match string.into_options() {
        Ok(options) => {
            assert_eq!(options.seeds, hosts);
            assert!(!options.load_balanced || options.seeds.len() == 1);
            assert!(options.direct_connection != Some(true) || options.seeds.len() == 1);
        }
        // `parse` has validated everything except rules about the hosts of an SRV string.
        Err(error) => assert!(is_srv, "{error}"),
    }
}

fn show(text: &str) -> String {
    match ConnectionString::parse(text) {
        Ok(string) => {
            let warnings: Vec<_> = string.warnings().iter().map(ToString::to_string).collect();
            let shown = format!("{string:?} {warnings:?}");
            match string.into_options() {
                Ok(options) => format!("{shown} {options:?}"),
                Err(error) => format!("{shown} {error} {error:?}"),
            }
        }
        Err(error) => format!("{error} {error:?}"),
    }
}
