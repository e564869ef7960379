//! The settings for pushing telemetry, as given by the option `--otlp` and the OpenTelemetry
//! variables.

mod destination;
#[cfg(test)]
mod tests;
mod values;

use std::{collections::BTreeMap, time::Duration};

use hyper::Uri;
use sdam_core::names;

pub(super) use self::destination::{Destination, File};
use self::values::{millis, pairs, url};
use crate::target::shown_url;

/// The variables that this module reads.
type Variables = BTreeMap<String, String>;

/// The default value of OTEL_METRIC_EXPORT_INTERVAL.
const INTERVAL: Duration = Duration::from_secs(60);

const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const EVERY: &str = "OTEL_METRIC_EXPORT_INTERVAL";

names! {
    /// A kind of telemetry. Its name occurs in the paths of requests and, in upper case, in the
    /// names of variables.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Signal {
        Metrics = "metrics",
        Logs = "logs",
        Traces = "traces",
    }
}

/// The settings for pushing telemetry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// The collector for each enabled kind of telemetry.
    pub(super) destinations: BTreeMap<Signal, Destination>,
    /// The attributes that describe this program to the collector, including its name.
    pub(super) resource: BTreeMap<String, String>,
    /// The interval at which metrics are pushed.
    pub(super) interval: Duration,
}

impl Settings {
    /// Reads the settings. Returns `None` if no collector is configured.
    ///
    /// # Errors
    ///
    /// If an option or a variable is invalid. The error names it and the remedy.
    pub(super) fn new(option: Option<&str>, variables: &Variables) -> Result<Option<Self>, String> {
        let endpoints = endpoints(option, variables)?;
        if endpoints.is_empty() {
            return Ok(None);
        }
        let mut resource = BTreeMap::from([
            ("service.name".to_owned(), "sdam".to_owned()),
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ]);
        if let Some(text) = variables.get(ATTRIBUTES) {
            resource.extend(pairs(ATTRIBUTES, text, "deployment.environment.name=test")?);
        }
        if let Some(name) = variables.get("OTEL_SERVICE_NAME") {
            resource.insert("service.name".to_owned(), name.clone());
        }
        let destinations = endpoints
            .into_iter()
            .map(|(signal, endpoint)| Ok((signal, Destination::new(signal, endpoint, variables)?)));
        let interval = variables.get(EVERY).map(|text| millis(EVERY, text, INTERVAL));
        Ok(Some(Self {
            destinations: destinations.collect::<Result<_, String>>()?,
            resource,
            interval: interval.transpose()?.unwrap_or(INTERVAL),
        }))
    }
}

fn endpoints(option: Option<&str>, variables: &Variables) -> Result<BTreeMap<Signal, Uri>, String> {
    let read = |name: &str| match variables.get(name) {
        Some(text) => match url(text) {
            Ok(url) => Ok(Some(url)),
            Err(error) => Err(format!("{name} is `{}`: {error}", shown_url(text))),
        },
        None => Ok(None),
    };
    let base = match option {
        Some(text) => {
            Some(url(text).map_err(|error| format!("--otlp {}: {error}", shown_url(text)))?)
        }
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
