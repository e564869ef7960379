//! Tests of SRV seed lists.
//!
//! A file contains a connection string, the resulting seeds, the options that result from the
//! string and the TXT record, and the servers that a client then discovers in the deployment.

mod deployment;
pub mod zone;

use std::collections::BTreeSet;

use sdam_core::{options::Options, rng::Rng, uri::ConnectionString, uri_options::Secret};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value as Json, json};

pub use self::deployment::{serve, simulate};
use crate::{fields::read, host::Host, requirement::Kind, uri::effective};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    uri: String,
    seeds: Option<Vec<String>>,
    num_seeds: Option<usize>,
    hosts: Option<Vec<String>>,
    num_hosts: Option<usize>,
    #[serde(default)]
    options: Map<String, Json>,
    #[serde(default, rename = "parsed_options")]
    parsed_options: Map<String, Json>,
    #[serde(default)]
    error: bool,
    ping: Option<bool>,
    #[serde(rename = "comment")]
    _comment: Option<IgnoredAny>,
}

/// Checks the seeds and options in a file with the records of the [`zone`], without a DNS look-up.
pub fn check(file: &Json) -> Result<(), String> {
    check_file(file, from_zone, |_, _| Ok(()))
}

/// Resolves `uri` with the records of the zone.
fn from_zone(uri: &str) -> Result<Options, String> {
    let resolve = || {
        let string = ConnectionString::parse(uri)?;
        let (records, txt) = match string.srv() {
            Some(srv) => (zone::srv(&srv.query_name()), zone::txt(&srv.host)),
            None => (zone::srv(""), Vec::new()),
        };
        string.resolved(&records, &txt, &mut Rng::new(1))?.into_options()
    };
    resolve().map_err(|error: sdam_core::options::ConfigError| error.to_string())
}

/// Checks a file with DNS look-ups on `host`, and with a client of a deployment there.
pub fn discover(host: &Host, file: &Json, kind: Kind) -> Result<(), String> {
    let resolve = |uri: &str| host.resolve(uri);
    check_file(file, resolve, |options, file| deployment::discover(host, kind, options, file))
}

/// Checks a file with a single-threaded client of a simulated deployment.
pub fn scan(file: &Json, kind: Kind) -> Result<(), String> {
    check_file(file, from_zone, |options, file| deployment::scan(kind, options, file))
}

/// Checks a file. `resolve` looks up the connection string, and `discover` connects a client. An
/// expected error must have the same reason as with the records of the [`zone`], so a failed
/// look-up does not count as the expected error.
fn check_file(
    file: &Json,
    resolve: impl FnOnce(&str) -> Result<Options, String>,
    discover: impl FnOnce(Options, &File) -> Result<(), String>,
) -> Result<(), String> {
    let file: File = read(file)?;
    let options = match (resolve(&file.uri), file.error) {
        (Err(error), true) => {
            let reason = from_zone(&file.uri).err();
            return match reason.filter(|reason| error.ends_with(reason)) {
                Some(_) => Ok(()),
                None => Err(format!("expected the string or a record to be refused: {error}")),
            };
        }
        (Ok(options), true) => return Err(format!("expected an error, found {:?}", options.seeds)),
        (Err(error), false) => return Err(error),
        (Ok(options), false) => options,
    };
    let seeds = options.seeds.iter().map(ToString::to_string).collect();
    compare("seeds", &seeds, file.seeds.as_deref(), file.num_seeds)?;
    check_options(&options, &file)?;
    check_parsed_options(&options, &file)?;
    if file.hosts.is_none() && file.num_hosts.is_none() && file.ping == Some(false) {
        return Ok(());
    }
    discover(options, &file)
}

/// Compares a set of addresses with `expected`, and its size with `count`, if they are given.
fn compare(
    what: &str,
    found: &BTreeSet<String>,
    expected: Option<&[String]>,
    count: Option<usize>,
) -> Result<(), String> {
    if expected.is_some_and(|expected| *found != expected.iter().cloned().collect()) {
        return Err(format!("the {what} are {found:?}, expected {expected:?}"));
    }
    match count {
        Some(count) if count != found.len() => Err(format!("expected {count} {what}: {found:?}")),
        _ => Ok(()),
    }
}

fn check_options(options: &Options, file: &File) -> Result<(), String> {
    let srv = options.srv.as_ref().ok_or("the look-up is not in the options")?;
    // All records have this TTL, whether they come directly from the zone or from a look-up.
    if srv.ttl != zone::TTL {
        return Err(format!("the time to live is {:?}", srv.ttl));
    }
    for (name, expected) in &file.options {
        let found = match &**name {
            "ssl" => Some(json!(options.tls.is_some())),
            "srvMaxHosts" => Some(json!(srv.max_hosts)),
            "srvServiceName" => Some(json!(srv.service)),
            name => effective(options, name),
        };
        if found.as_ref() != Some(expected) {
            return Err(format!("{name} is {found:?}, expected {expected}"));
        }
    }
    Ok(())
}

/// Checks the parts of the connection string that are not in its query: user, password and
/// database.
fn check_parsed_options(options: &Options, file: &File) -> Result<(), String> {
    let string = ConnectionString::parse(&file.uri).map_err(|error| error.to_string())?;
    let credential = options.credential.as_ref();
    for (name, expected) in &file.parsed_options {
        let found = match &**name {
            "user" => credential.and_then(|own| own.user.as_deref()),
            "password" => credential.and_then(|own| own.password.as_ref().map(Secret::expose)),
            "db" | "auth_database" | "defaultDatabase" => string.database(),
            name => return Err(format!("an unknown parsed option: {name}")),
        };
        if found != expected.as_str() {
            return Err(format!("{name} is {found:?}, expected {expected}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_file(file: &Json) -> Result<(), String> {
        check(file)?;
        scan(file, Kind::ReplicaSet)
    }

    #[test]
    fn an_expected_error_passes_unless_a_look_up_failed() {
        for uri in ["mongodb+srv://test4.test.build.10gen.cc", "mongodb+srv://a.b.c:1"] {
            let file = json!({ "uri": uri, "error": true });
            assert_eq!(check_file(&file), Ok(()));
            let failed = |_: &str| Err("no answer from the name server".to_owned());
            let difference = super::check_file(&file, failed, |_, _| Ok(())).unwrap_err();
            assert!(difference.contains("no answer"), "{difference}");
        }
    }

    #[test]
    fn a_ping_that_fails_is_a_difference() {
        let uri = "mongodb+srv://test1.test.build.10gen.cc/?replicaSet=other";
        let difference = check_file(&json!({ "uri": uri })).unwrap_err();
        assert!(difference.contains("other"), "{difference}");
    }
}
