//! The destination and the settings of pushes, from the option `--otlp` and the OpenTelemetry
//! variables.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr, time::Duration};

use hyper::{
    HeaderMap, Uri,
    header::{HeaderName, HeaderValue},
};
use sdam_core::names;

use crate::target::redact;

/// The variables that this module reads, without the prefix `OTEL_`.
type Variables = BTreeMap<String, String>;

/// The default of OTEL_METRIC_EXPORT_INTERVAL.
const INTERVAL: Duration = Duration::from_secs(60);
/// The default of OTEL_EXPORTER_OTLP_TIMEOUT.
const TIMEOUT: Duration = Duration::from_secs(10);

names! {
    /// A kind of telemetry, with its name in paths and, in upper case, in variables.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Signal {
        Metrics = "metrics",
        Logs = "logs",
        Traces = "traces",
    }
}

/// The destination and the settings of pushes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings {
    endpoints: BTreeMap<Signal, Uri>,
    pub(super) headers: HeaderMap,
    /// The attributes of this program, including its name.
    pub(super) resource: BTreeMap<String, String>,
    /// The interval at which metrics are pushed.
    pub(super) interval: Duration,
    /// The time limit of a request.
    pub(super) timeout: Duration,
    /// The file with the authorities for the collector's certificate.
    pub(super) certificate: Option<PathBuf>,
}

impl Settings {
    /// Reads the settings; `None` if no collector is configured.
    ///
    /// # Errors
    ///
    /// Names the invalid option or variable and its remedy.
    pub(super) fn new(option: Option<&str>, variables: &Variables) -> Result<Option<Self>, String> {
        let endpoints = endpoints(option, variables)?;
        if endpoints.is_empty() {
            return Ok(None);
        }
        let protocol = variables.get("OTEL_EXPORTER_OTLP_PROTOCOL");
        if let Some(protocol) = protocol.filter(|it| *it != "http/protobuf") {
            return Err(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is `{protocol}`, but sdam speaks http/protobuf only; \
                 set that, and the port to the collector's for HTTP, usually 4318"
            ));
        }
        let mut resource = BTreeMap::from([
            ("service.name".to_owned(), "sdam".to_owned()),
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ]);
        resource.extend(pairs(
            variables,
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test",
        )?);
        if let Some(name) = variables.get("OTEL_SERVICE_NAME") {
            resource.insert("service.name".to_owned(), name.clone());
        }
        let certificate = variables.get("OTEL_EXPORTER_OTLP_CERTIFICATE");
        Ok(Some(Self {
            endpoints,
            headers: headers(variables)?,
            resource,
            interval: millis(variables, "OTEL_METRIC_EXPORT_INTERVAL", INTERVAL)?,
            timeout: millis(variables, "OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT)?,
            certificate: certificate.map(PathBuf::from),
        }))
    }

    /// Returns the destination for this kind; `None` if it is disabled.
    pub(super) fn endpoint(&self, signal: Signal) -> Option<&Uri> {
        self.endpoints.get(&signal)
    }

    /// Returns whether an endpoint needs TLS.
    pub(super) fn has_tls(&self) -> bool {
        let mut endpoints = self.endpoints.values();
        endpoints.any(|endpoint| endpoint.scheme_str() == Some("https"))
    }
}

/// Parses the URL of a collector.
fn url(text: &str) -> Result<Uri, String> {
    let url = Uri::from_str(text.trim_end_matches('/')).ok();
    let url = url.filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
    let host = |url: &Uri| url.host().is_some_and(|host| !host.is_empty());
    let needs = "it needs the URL of a collector, for example http://127.0.0.1:4318";
    let url = url.filter(host).ok_or_else(|| needs.to_owned())?;
    if url.authority().is_some_and(|it| it.as_str().contains('@')) || url.query().is_some() {
        let remedy = "a password belongs in OTEL_EXPORTER_OTLP_HEADERS";
        return Err(format!("{needs}, without user and query; {remedy}"));
    }
    Ok(url)
}

/// Hides the possibly secret parts of a URL: user, password and query.
fn shown(url: &str) -> String {
    let shown = redact(url);
    match shown.split_once('?') {
        Some((before, _)) => format!("{before}?***"),
        None => shown,
    }
}

fn endpoints(option: Option<&str>, variables: &Variables) -> Result<BTreeMap<Signal, Uri>, String> {
    let read = |name: &str| match variables.get(name) {
        Some(text) => match url(text) {
            Ok(url) => Ok(Some(url)),
            Err(error) => Err(format!("{name} is `{}`: {error}", shown(text))),
        },
        None => Ok(None),
    };
    let base = match option {
        Some(text) => Some(url(text).map_err(|error| format!("--otlp {}: {error}", shown(text)))?),
        None if is_on(variables, "OTEL_SDK_DISABLED") => return Ok(BTreeMap::new()),
        None => read("OTEL_EXPORTER_OTLP_ENDPOINT")?,
    };
    let mut endpoints = BTreeMap::new();
    for &signal in Signal::ALL {
        let name = signal.as_str().to_uppercase();
        let exporter = variables.get(&format!("OTEL_{name}_EXPORTER"));
        if exporter.is_some_and(|exporters| !exporters.split(',').any(|it| it.trim() == "otlp")) {
            continue;
        }
        let own = match option {
            Some(_) => None,
            None => read(&format!("OTEL_EXPORTER_OTLP_{name}_ENDPOINT"))?,
        };
        let below = |base: &Uri| {
            let base = base.to_string();
            url(&format!("{}/v1/{}", base.trim_end_matches('/'), signal.as_str()))
        };
        if let Some(endpoint) = own.map(Ok).or_else(|| base.as_ref().map(below)) {
            endpoints.insert(signal, endpoint?);
        }
    }
    Ok(endpoints)
}

fn is_on(variables: &Variables, name: &str) -> bool {
    variables.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

fn millis(variables: &Variables, name: &str, default: Duration) -> Result<Duration, String> {
    let Some(text) = variables.get(name) else {
        return Ok(default);
    };
    match u64::from_str(text) {
        Ok(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err(format!(
            "{name} is `{text}`: it needs a number of milliseconds above 0, for example {}",
            default.as_millis()
        )),
    }
}

/// Parses a list such as `a=b,c=d` with percent-encoded values. The error shows no value, because
/// it may be secret.
fn pairs(
    variables: &Variables,
    name: &str,
    example: &str,
) -> Result<Vec<(String, String)>, String> {
    let text = variables.get(name).map_or("", String::as_str);
    let items = text.split(',').map(str::trim).enumerate();
    let items = items.filter(|(_, item)| !item.is_empty());
    let pairs = items.map(|(place, item)| {
        let pair = item.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let pair = pair.filter(|(key, _)| !key.is_empty());
        let pair = pair.and_then(|(key, value)| Some((key.to_owned(), decoded(value)?)));
        let place = place + 1;
        pair.ok_or_else(|| {
            format!("{name}: item {place} is not valid: it needs pairs such as {example}")
        })
    });
    pairs.collect()
}

/// Decodes a percent-encoded text.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).filter(|code| !code.starts_with('+'))?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

fn headers(variables: &Variables) -> Result<HeaderMap, String> {
    const NAME: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    let pairs = pairs(variables, NAME, "authorization=Bearer%20TOKEN")?;
    let header = |(name, value): (String, String)| {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_str(&name).ok()?, value))
    };
    let headers = pairs.into_iter().map(|pair| {
        let key = pair.0.clone();
        header(pair)
            .ok_or_else(|| format!("{NAME}: the header {key:?} has an invalid name or value"))
    });
    headers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(option: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let pairs =
            variables.iter().map(|(name, value)| (format!("OTEL_{name}"), (*value).to_owned()));
        Settings::new(option, &pairs.collect())
    }

    #[test]
    fn endpoints_follow_the_specification() {
        let check = |option: Option<&str>, variables: &[(&str, &str)], expected: &[&str]| {
            let settings = read(option, variables).unwrap();
            let found: Vec<_> = settings
                .iter()
                .flat_map(|it| it.endpoints.values())
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, expected, "{option:?} {variables:?}");
        };
        let base = "EXPORTER_OTLP_ENDPOINT";
        let all = ["http://a:4318/v1/metrics", "http://a:4318/v1/logs", "http://a:4318/v1/traces"];
        check(None, &[], &[]);
        check(None, &[("SERVICE_NAME", "x")], &[]);
        check(Some("http://a:4318"), &[], &all);
        check(Some("http://a:4318/"), &[(base, "http://b")], &all);
        check(None, &[(base, "http://a:4318")], &all);
        check(None, &[(base, "http://a:4318"), ("SDK_DISABLED", "true")], &[]);
        check(
            None,
            &[(base, "https://a/otlp/"), ("LOGS_EXPORTER", "none"), ("TRACES_EXPORTER", "console")],
            &["https://a/otlp/v1/metrics"],
        );
        let own = ("EXPORTER_OTLP_METRICS_ENDPOINT", "http://b:9090/api/v1/otlp/v1/metrics");
        check(None, &[own], &["http://b:9090/api/v1/otlp/v1/metrics"]);
        check(None, &[own, (base, "http://a:4318")], &[own.1, all[1], all[2]]);
    }

    #[test]
    fn other_variables_are_decoded() {
        let settings = read(
            Some("http://a"),
            &[
                ("EXPORTER_OTLP_HEADERS", "authorization=Basic%20YTpi, x-tenant = shop "),
                ("RESOURCE_ATTRIBUTES", "service.name=a,service.instance.id=i%2C1"),
                ("SERVICE_NAME", "exporter"),
                ("METRIC_EXPORT_INTERVAL", "5000"),
                ("EXPORTER_OTLP_TIMEOUT", "250"),
            ],
        );
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.headers["authorization"], "Basic YTpi");
        assert_eq!(settings.headers["x-tenant"], "shop");
        assert_eq!(settings.resource["service.name"], "exporter");
        assert_eq!(settings.resource["service.instance.id"], "i,1");
        assert_eq!(settings.interval, Duration::from_secs(5));
        assert_eq!(settings.timeout, Duration::from_millis(250));
        assert!(!settings.has_tls());
        let defaults = read(Some("https://a"), &[]).unwrap().unwrap();
        assert_eq!(defaults.resource["service.name"], "sdam");
        assert_eq!((defaults.interval, defaults.timeout), (INTERVAL, TIMEOUT));
        assert!(defaults.has_tls());
    }

    #[test]
    fn errors_name_the_input_and_the_remedy_but_no_secret() {
        let check = |option: Option<&str>, variables: &[(&str, &str)], expected: &[&str]| {
            let said = read(option, variables).unwrap_err();
            for expected in expected {
                assert!(said.contains(expected), "{said}");
            }
            assert!(!said.contains("secret"), "{said}");
        };
        for (bad, shown) in [
            ("collector", "collector"),
            ("127.0.0.1:4318", "127.0.0.1:4318"),
            ("grpc://a:4317", "grpc://a:4317"),
            ("http://", "http://"),
            ("http://u:secret@a", "http://***@a"),
            ("http://a?b=secret", "http://a?***"),
        ] {
            check(Some(bad), &[], &["--otlp", shown, "http://127.0.0.1:4318"]);
            check(
                None,
                &[("EXPORTER_OTLP_ENDPOINT", bad)],
                &["OTEL_EXPORTER_OTLP_ENDPOINT", shown],
            );
            check(
                None,
                &[("EXPORTER_OTLP_LOGS_ENDPOINT", bad)],
                &["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", shown],
            );
        }
        let with = |name: &str, value, words: &str| {
            let variable = format!("OTEL_{name}");
            let expected: Vec<_> = words.split(", ").chain([&*variable]).collect();
            check(Some("http://a"), &[(name, value)], &expected);
        };
        with("EXPORTER_OTLP_PROTOCOL", "grpc", "grpc, 4318");
        with("METRIC_EXPORT_INTERVAL", "0", "`0`, 60000");
        with("EXPORTER_OTLP_TIMEOUT", "2s", "`2s`, 10000");
        let headers = "EXPORTER_OTLP_HEADERS";
        with(headers, "a=b,secret", "item 2, Bearer%20TOKEN");
        with(headers, "a=secret%", "item 1");
        with(headers, "a b=secret", "\"a b\"");
        with("RESOURCE_ATTRIBUTES", "=x", "item 1");
    }
}
