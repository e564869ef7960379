//! Tests of credentials in connection strings.
//!
//! A case consists of a connection string and, if the string is valid, the expected credential. The
//! credential is compared even if its mechanism is unsupported, but creating an authenticator for
//! it must then fail.

use sdam_core::{
    options::{Credential, Options},
    uri_options::{Properties, Secret},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use std::collections::BTreeMap;

use crate::fields::read;

/// The mechanisms whose test cases lack options that the mechanism needs, each with these options.
const ADDITIONS: [(&str, &str); 2] =
    [("PLAIN", "&tls=true"), ("MONGODB-X509", "&tls=true&tlsCertificateKeyFile=/client.pem")];

/// The mechanisms for which users must provide an authenticator of their own.
const UNSUPPORTED: [&str; 3] = ["GSSAPI", "MONGODB-AWS", "MONGODB-OIDC"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tests: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "description")]
    _description: IgnoredAny,
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
    let file: File = read(file)?;
    let failures = file.tests.iter().filter_map(|case| {
        let failure = case.check().err()?;
        Some(format!("{}: {failure}", case.uri))
    });
    let failures: Vec<_> = failures.collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n    ")) }
}

impl Case {
    fn check(&self) -> Result<(), String> {
        let mechanism = self.credential.as_ref();
        let mechanism = mechanism.and_then(|credential| credential.mechanism.as_deref());
        let addition = ADDITIONS.iter().find(|(own, _)| Some(*own) == mechanism);
        let mut uri = self.uri.clone();
        uri.extend(addition.map(|(_, options)| *options));
        let options = Options::parse(&uri);
        let options = options.map_err(|error| error.to_string());
        let made = options.clone().and_then(|options| {
            let made = sdam_auth::authenticator(&options);
            made.map(drop).map_err(|error| error.to_string())
        });
        if !self.valid {
            let message = "the string is accepted, expected an error";
            return made.err().map(drop).ok_or_else(|| message.to_owned());
        }
        match (mechanism, &made) {
            (Some(own), Ok(())) if UNSUPPORTED.contains(&own) => {
                return Err(format!("{own} is supported, so the file has to say more"));
            }
            (Some(own), Err(_)) if UNSUPPORTED.contains(&own) => {}
            _ => made?,
        }
        let found = options?.credential.as_ref().map(Expected::of);
        if found == self.credential {
            return Ok(());
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
