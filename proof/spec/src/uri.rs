//! Tests of connection strings and their options.
//!
//! A case is a connection string and its expected validity, warning, hosts, credentials and
//! options. `null` asserts nothing.

use std::{net::Ipv4Addr, time::Duration};

use sdam_core::{
    address::{DEFAULT_PORT, ServerAddress},
    options::{Acknowledgment, Options},
    uri::ConnectionString,
    uri_options::{Secret, Value},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value as Json, json};

use crate::fields::check_cases;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    uri: String,
    valid: bool,
    warning: Option<bool>,
    hosts: Option<Vec<Host>>,
    auth: Option<Auth>,
    options: Option<Map<String, Json>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "host")]
    name: String,
    port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    username: Option<String>,
    password: Option<String>,
    db: Option<String>,
}

/// Checks one file from `uri-options/tests` or `connection-string/tests`.
pub fn check_file(file: &Json) -> Result<(), String> {
    check_cases(file, check)
}

fn check(case: Case) -> Result<(), String> {
    let string = match (case.valid, ConnectionString::parse(&case.uri)) {
        (false, Err(_)) => return Ok(()),
        (false, Ok(_)) => return Err("the string is accepted, expected an error".into()),
        (true, Err(error)) => {
            return Err(format!("the string is refused, expected valid: {error}"));
        }
        (true, Ok(string)) => string,
    };
    if let Some(warning) = case.warning {
        check_warnings(warning, &string)?;
    }
    if let Some(hosts) = &case.hosts {
        check_hosts(hosts, &string)?;
    }
    if let Some(auth) = &case.auth {
        check_auth(auth, &string)?;
    }
    check_options(&case.options.unwrap_or_default(), string)
}

fn check_warnings(expected: bool, string: &ConnectionString) -> Result<(), String> {
    match (expected, string.warnings()) {
        (true, []) => Err("there is no warning, expected one".into()),
        (false, [first, ..]) => Err(format!("expected no warning: {first}")),
        _ => Ok(()),
    }
}

fn check_hosts(expected: &[Host], string: &ConnectionString) -> Result<(), String> {
    let hosts = string.hosts();
    if hosts.len() != expected.len() {
        return Err(format!("the hosts are {hosts:?}"));
    }
    for (expected, host) in expected.iter().zip(hosts) {
        let default_port = (!host.is_unix()).then_some(DEFAULT_PORT);
        let kind = expected.kind.as_deref();
        let as_expected = expected.name == host.host()
            && expected.port.or(default_port) == host.port()
            && kind.is_none_or(|kind| kind == host_type(host));
        if !as_expected {
            return Err(format!("unexpected host of type {}: {host}", host_type(host)));
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

/// Checks credentials more strictly than the format requires: if a field is `null`, the credential
/// must not contain this field.
fn check_auth(expected: &Auth, string: &ConnectionString) -> Result<(), String> {
    let password = string.password().map(Secret::expose);
    for (name, expected, found) in [
        ("username", &expected.username, string.user()),
        ("password", &expected.password, password),
        ("db", &expected.db, string.database()),
    ] {
        if expected.as_deref() != found {
            return Err(format!("the {name} is {found:?}"));
        }
    }
    Ok(())
}

/// Checks the values of the options in the string. If no SRV name must be resolved first, also
/// checks the options with which a topology would start.
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
        // The options have no field for a refused option.
        let is_refused = || options.validate().is_err_and(|error| error.option() == *name);
        if found.as_ref() != Some(value) && !is_refused() {
            return Err(format!("{name} is {found:?} in the options"));
        }
    }
    Ok(())
}

/// Returns the value of the option `name` among the options with which a topology would start.
pub(crate) fn effective(options: &Options, name: &str) -> Option<Json> {
    let preference = &options.read_preference;
    let millis = |time: Duration| Some(json!(time.as_millis() as u64));
    match name.to_ascii_lowercase().as_str() {
        "appname" => Some(json!(options.app_name.as_deref()?)),
        "connecttimeoutms" => millis(options.connect_timeout.unwrap_or_default()),
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
        _ => effective_of_driver(options, name),
    }
}

/// Returns the value of an option of pools, operations, authentication, TLS and proxies.
fn effective_of_driver(options: &Options, name: &str) -> Option<Json> {
    let (pool, tls) = (&options.pool, options.tls.as_ref());
    let (credential, proxy) = (options.credential.as_ref(), options.proxy.as_ref());
    let limit = |time: Option<Duration>| Some(json!(time.unwrap_or_default().as_millis() as u64));
    match name.to_ascii_lowercase().as_str() {
        "authmechanism" => Some(json!(credential?.mechanism.as_deref()?)),
        "authmechanismproperties" => Some(pairs(credential?.properties.as_ref()?.iter())),
        "authsource" => match credential {
            Some(credential) => Some(json!(credential.source())),
            None => Some(json!(options.auth_source.as_deref()?)),
        },
        "compressors" => Some(json!(options.compressors)),
        "enableoverloadretargeting" => Some(json!(options.enable_overload_retargeting)),
        "journal" => Some(json!(options.journal?)),
        "maxadaptiveretries" => Some(json!(options.max_adaptive_retries)),
        "maxconnecting" => Some(json!(pool.max_connecting)),
        "maxidletimems" => limit(pool.max_idle_time),
        "maxpoolsize" => Some(json!(pool.max_pool_size)),
        "minpoolsize" => Some(json!(pool.min_pool_size)),
        "proxyhost" => Some(json!(&*proxy?.host)),
        "proxyport" => Some(json!(proxy?.port)),
        "proxyusername" => Some(json!(&*proxy?.credential.as_ref()?.0)),
        "proxypassword" => Some(json!(proxy?.credential.as_ref()?.1.expose())),
        "readconcernlevel" => Some(json!(options.read_concern_level.as_deref()?)),
        "retryreads" => Some(json!(options.retry_reads)),
        "retrywrites" => Some(json!(options.retry_writes)),
        "sockettimeoutms" => limit(options.socket_timeout),
        "timeoutms" => limit(Some(options.timeout?)),
        "tls" | "ssl" => Some(json!(tls.is_some())),
        "tlscafile" => Some(json!(tls?.ca_file.as_deref()?)),
        "tlscertificatekeyfile" => Some(json!(tls?.certificate_key_file.as_deref()?)),
        "tlsallowinvalidcertificates" => Some(json!(tls?.allow_invalid_certificates)),
        "tlsallowinvalidhostnames" => Some(json!(tls?.allow_invalid_hostnames)),
        "tlsdisableocspendpointcheck" => Some(json!(tls?.disable_ocsp_endpoint_check)),
        "tlsdisablecertificaterevocationcheck" => {
            Some(json!(tls?.disable_certificate_revocation_check))
        }
        // `tlsInsecure` sets these two options and both revocation options.
        "tlsinsecure" => {
            Some(json!(tls?.allow_invalid_certificates && tls?.allow_invalid_hostnames))
        }
        "w" => match options.w.as_ref()? {
            Acknowledgment::Nodes(nodes) => Some(json!(nodes)),
            Acknowledgment::Named(name) => Some(json!(name)),
            _ => None,
        },
        "waitqueuetimeoutms" => limit(pool.wait_queue_timeout),
        "wtimeoutms" => limit(options.w_timeout),
        "zlibcompressionlevel" => Some(json!(options.zlib_compression_level?)),
        _ => None,
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
        // The files contain no values of other kinds, so this value never equals an expected one.
        other => json!({ "unknown": format!("{other:?}") }),
    }
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Json {
    pairs.map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>().into()
}
