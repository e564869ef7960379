//! Connection strings and their options.
//!
//! A case is a string that is valid or not, causes a warning or not, and names hosts, credentials
//! and options; `null` asserts nothing.

use std::{net::Ipv4Addr, time::Duration};

use sdam_core::{
    address::{DEFAULT_PORT, ServerAddress},
    options::Options,
    uri::{ConnectionString, Secret, Value},
};
use serde_json::{Map, Value as Json, json};

use crate::json::{self, Object};

#[cfg(test)]
mod tests;

/// Checks one file of `uri-options/tests`.
pub fn uri_options(file: &Json) -> Result<(), String> {
    check_file(file)
}

/// Checks one file of `connection-string/tests`.
pub fn connection_string(file: &Json) -> Result<(), String> {
    check_file(file)
}

/// Both folders have the same format: a list of cases.
fn check_file(file: &Json) -> Result<(), String> {
    let file = Object::new(file, "file", &["tests"])?;
    let cases = file.read("tests", |cases| json::list(cases, Ok))?;
    if cases.is_empty() {
        return Err("there is no case in the file".into());
    }
    let failures: Vec<String> = cases
        .into_iter()
        .filter_map(|case| {
            check(case)
                .err()
                .map(|error| format!("{}: {error}", case["uri"]))
        })
        .collect();
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n    "))
    }
}

fn check(case: &Json) -> Result<(), String> {
    let known = [
        "description",
        "uri",
        "valid",
        "warning",
        "hosts",
        "auth",
        "options",
    ];
    let case = Object::new(case, "case", &known)?;
    let parsed = ConnectionString::parse(case.read("uri", json::text)?);
    let string = match (case.read("valid", json::boolean)?, parsed) {
        (false, Err(_)) => return Ok(()),
        (false, Ok(_)) => return Err("the string is taken for valid".into()),
        (true, Err(error)) => return Err(format!("the string is taken for invalid: {error}")),
        (true, Ok(string)) => string,
    };
    if let Some(warning) = case.read_optional("warning", json::boolean)? {
        check_warnings(warning, &string)?;
    }
    case.read_optional("hosts", |hosts| check_hosts(hosts, &string))?;
    case.read_optional("auth", |auth| check_auth(auth, &string))?;
    let options = case.read_optional("options", object)?.unwrap_or_default();
    check_options(&options, string)
}

fn check_warnings(expected: bool, string: &ConnectionString) -> Result<(), String> {
    match (expected, string.warnings()) {
        (true, []) => Err("there is no warning".into()),
        (false, [first, ..]) => Err(format!("there is a warning: {first}")),
        _ => Ok(()),
    }
}

fn check_hosts(expected: &Json, string: &ConnectionString) -> Result<(), String> {
    let expected = json::list(expected, |host| {
        Object::new(host, "host", &["type", "host", "port"])
    })?;
    let hosts = string.hosts();
    if hosts.len() != expected.len() {
        return Err(format!("there are {hosts:?}"));
    }
    for (expected, host) in expected.iter().zip(hosts) {
        let kind = expected.read_optional("type", json::text)?;
        let port = expected.read_optional("port", json::natural)?;
        let default_port = (!host.is_unix()).then_some(u64::from(DEFAULT_PORT));
        let as_expected = expected.read("host", json::text)? == host.host()
            && port.or(default_port) == host.port().map(u64::from)
            && kind.is_none_or(|kind| kind == host_type(host));
        if !as_expected {
            return Err(format!("there is the {} {host}", host_type(host)));
        }
    }
    Ok(())
}

fn host_type(host: &ServerAddress) -> &'static str {
    if host.is_unix() {
        "unix"
    } else if host.host().contains(':') {
        "ip_literal"
    } else if host.host().parse::<Ipv4Addr>().is_ok() {
        "ipv4"
    } else {
        "hostname"
    }
}

/// Stricter than the format demands: within credentials, `null` means that there is nothing.
fn check_auth(expected: &Json, string: &ConnectionString) -> Result<(), String> {
    let expected = Object::new(expected, "auth", &["username", "password", "db"])?;
    let password = string.password().map(Secret::expose);
    let parts = [
        ("username", string.user()),
        ("password", password),
        ("db", string.database()),
    ];
    for (name, found) in parts {
        if expected.read_optional(name, json::text)? != found {
            return Err(format!("the {name} is {found:?}"));
        }
    }
    Ok(())
}

/// Options must have the value in the string and, where no host has to be looked up first, in what
/// a topology is started with.
fn check_options(expected: &Map<String, Json>, string: ConnectionString) -> Result<(), String> {
    let expected = || expected.iter().filter(|(_, value)| !value.is_null());
    for (name, value) in expected() {
        let found = string.option(name).map(to_json);
        if found.as_ref() != Some(value) {
            return Err(format!("{name} is {found:?} in the string"));
        }
    }
    if string.srv().is_some() {
        return Ok(());
    }
    let options = string.into_options().map_err(|error| error.to_string())?;
    for (name, value) in expected() {
        let found = effective(&options, name);
        if found.as_ref() != Some(value) {
            return Err(format!("{name} is {found:?} in the options"));
        }
    }
    Ok(())
}

/// The value of the option `name` among those a topology would be started with.
fn effective(options: &Options, name: &str) -> Option<Json> {
    let preference = &options.read_preference;
    let millis = |time: Duration| Some(json!(time.as_millis() as u64));
    match name.to_ascii_lowercase().as_str() {
        "appname" => Some(json!(options.app_name.as_deref()?)),
        "connecttimeoutms" => millis(options.connect_timeout),
        "directconnection" => Some(json!(options.direct_connection?)),
        "heartbeatfrequencyms" => millis(options.heartbeat_frequency?),
        "loadbalanced" => Some(json!(options.load_balanced)),
        "localthresholdms" => millis(options.local_threshold),
        "maxstalenessseconds" => Some(json!(preference.max_staleness?.as_secs())),
        "readpreference" => Some(json!(preference.mode.as_str())),
        "readpreferencetags" => Some(to_json(&Value::TagSets(preference.tag_sets.clone()))),
        "replicaset" => Some(json!(options.replica_set.as_deref()?)),
        "servermonitoringmode" => Some(json!(options.server_monitoring_mode.as_str())),
        "serverselectiontimeoutms" => millis(options.server_selection_timeout),
        "serverselectiontryonce" => Some(json!(options.server_selection_try_once?)),
        _ => options.pass_through.value(name).map(to_json),
    }
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Flag(on) => json!(on),
        Value::Number(number) => json!(number),
        Value::Duration(time) => json!(time.as_millis() as u64),
        Value::Text(text) => json!(text),
        Value::Secret(secret) => json!(secret.expose()),
        Value::List(items) => json!(items),
        Value::Properties(properties) => pairs(properties.iter()),
        Value::TagSets(sets) => sets.iter().map(|set| pairs(set.iter())).collect(),
        // A kind of value the files say nothing about equals none of theirs.
        other => json!({ "unknown": format!("{other:?}") }),
    }
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Json {
    pairs
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect::<Map<_, _>>()
        .into()
}

fn object(value: &Json) -> Result<Map<String, Json>, String> {
    let object = value.as_object().cloned();
    object.ok_or_else(|| format!("{value} is no object"))
}
