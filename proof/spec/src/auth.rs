//! Tests of credentials in connection strings.
//!
//! A case consists of a connection string and, if the string is valid, the expected credential. If
//! the mechanism is not supported, only the credential is compared. Cases in which such a mechanism
//! would have to refuse the connection string are left out.

use sdam_core::{
    options::{ConfigError, Credential, Options},
    uri_options::{Properties, Secret},
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

use crate::fields::{Cases, check_cases, read};

/// The mechanisms that `sdam-auth` always refuses for these files. Users must provide their own
/// authenticator for the first three. `PLAIN` is refused because no connection string in the files
/// enables TLS.
const REFUSED: [&str; 4] = ["GSSAPI", "MONGODB-AWS", "MONGODB-OIDC", "PLAIN"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    description: String,
    uri: String,
    valid: bool,
    credential: Option<Expected>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Expected {
    username: Option<String>,
    password: Option<String>,
    source: String,
    mechanism: Option<String>,
    mechanism_properties: Option<BTreeMap<String, String>>,
}

/// Checks one file of `auth/tests/legacy`.
pub fn check(file: &Value) -> Result<(), String> {
    check_cases(file, |case: Case| case.check().map(drop))
}

/// Returns the cases that are left out, with the reason.
pub fn left_out(file: &Value) -> Vec<(String, &'static str)> {
    let file = read::<Cases<Case>>(file);
    let cases = file.into_iter().flat_map(|file| file.tests);
    let cases = cases.filter(|case| case.check() == Ok(Outcome::LeftOut));
    cases.map(|case| (case.description, "the mechanism is not supported")).collect()
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Passed,
    /// The string has to be refused, but it was refused because the mechanism is not supported.
    LeftOut,
}

impl Case {
    fn check(&self) -> Result<Outcome, String> {
        let options = match Options::parse(&self.uri) {
            Err(_) if !self.valid => return Ok(Outcome::Passed),
            options => options.map_err(|error| error.to_string())?,
        };
        let refusal = sdam_auth::authenticator(&options).err();
        let mechanism = options.credential.as_ref().and_then(|own| own.mechanism.as_deref());
        let is_mechanism = |error: &ConfigError| error.option() == "authMechanism";
        match (self.valid, refusal) {
            (false, None) => return Err("the string is accepted, expected an error".to_owned()),
            (false, Some(error)) if is_mechanism(&error) => return Ok(Outcome::LeftOut),
            (false, Some(_)) => return Ok(Outcome::Passed),
            (true, refusal) => {
                let is_refused = refusal.as_ref().is_some_and(is_mechanism);
                if is_refused != mechanism.is_some_and(|own| REFUSED.contains(&own)) {
                    return Err(format!("the mechanism {mechanism:?}: {refusal:?}"));
                }
                if let Some(error) = refusal.filter(|_| !is_refused) {
                    return Err(error.to_string());
                }
            }
        }
        let found = options.credential.as_ref().map(Expected::of);
        if found == self.credential {
            return Ok(Outcome::Passed);
        }
        Err(format!("the credential is {found:?}"))
    }
}

impl Expected {
    fn of(credential: &Credential) -> Self {
        let pairs = |properties: &Properties| {
            let pairs = properties.iter();
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let mut properties: Option<BTreeMap<_, _>> = credential.properties.as_ref().map(pairs);
        if credential.mechanism.as_deref() == Some("GSSAPI") {
            // The authenticator itself adds this default value, so the value is missing from the
            // credential.
            let properties = properties.get_or_insert_default();
            properties.entry("SERVICE_NAME".to_owned()).or_insert("mongodb".to_owned());
        }
        Self {
            username: credential.user.as_deref().map(str::to_owned),
            password: credential.password.as_ref().map(|it| Secret::expose(it).to_owned()),
            source: credential.source().to_owned(),
            mechanism: credential.mechanism.as_deref().map(str::to_owned),
            mechanism_properties: properties,
        }
    }
}
