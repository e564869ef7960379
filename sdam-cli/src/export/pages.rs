//! The pages, and the deployment that each request names.

use std::{fmt::Display, time::Duration};

use hyper::{HeaderMap, Response, StatusCode, http::request::Parts};
use sdam_core::{
    read_preference::{ReadMode, ReadPreference},
    topology::TopologyDescription,
};
use sdam_select::{criteria::Criteria, explain::explain, settings::Settings};

use super::{
    deployment::{Deployment, Watched},
    page::Page,
};
use crate::{
    http,
    json::{self, RoundTrips},
    terminal::json_line,
};

const INDEX: &str = "\
/metrics       metrics, in the text format of Prometheus
/probe         the same of one deployment; waits for the first checks of it
/topology      the description of the topology, as JSON
/healthz       200 if the deployment can be written to, else 503 and the reason
/healthz?read=MODE
               200 if it can be read with this read preference: primary,
               primaryPreferred, secondary, secondaryPreferred or nearest
/primary       the address of the primary, or 503
/-/healthy     200 while this program runs
";

/// The header with Prometheus' time limit, in seconds.
const SCRAPE_TIMEOUT: &str = "x-prometheus-scrape-timeout-seconds";
/// The time limit of a probe without such a header, which is Prometheus' default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum part of a time limit to reserve for sending the answer.
const OFFSET: Duration = Duration::from_millis(500);

/// The status and text of the answer to an invalid request.
struct Refusal(StatusCode, String);

/// The pages of all deployments.
pub(super) struct Pages(pub(super) Vec<Deployment>);

impl Pages {
    /// Returns the requested page.
    pub(super) async fn answer(&self, request: &Parts) -> Response<String> {
        let page = match request.uri.path() {
            "/" => others(request, &[]).map(|()| http::text(StatusCode::OK, INDEX)),
            http::HEALTHY => others(request, &[]).map(|()| http::text(StatusCode::OK, "ok\n")),
            "/metrics" => others(request, &[]).map(|()| metrics(&self.metrics())),
            "/probe" => match self.requested(request, &["target"]) {
                Ok(deployment) => {
                    deployment.checked(patience(&request.headers)).await;
                    Ok(metrics(&deployment.metrics()))
                }
                Err(refusal) => Err(refusal),
            },
            "/topology" => self.requested(request, &["target"]).map(topology),
            "/healthz" => criteria(request).and_then(|criteria| {
                self.described(request, &["target", "read"], |watched, topology| {
                    health(topology, &watched.settings, &criteria)
                })
            }),
            "/primary" => self.described(request, &["target"], |_, topology| primary(topology)),
            _ => Ok(http::status(StatusCode::NOT_FOUND)),
        };
        page.unwrap_or_else(|Refusal(status, said)| http::text(status, format!("{said}\n")))
    }

    /// Returns the metrics of all deployments.
    pub(super) fn metrics(&self) -> Page {
        let mut page = Page::default();
        for deployment in &self.0 {
            page.add(deployment.metrics());
        }
        page
    }

    /// Returns a page about the topology of the requested deployment, if it has one yet.
    fn described(
        &self,
        request: &Parts,
        known: &[&str],
        page: impl FnOnce(&Watched, &TopologyDescription) -> Response<String>,
    ) -> Result<Response<String>, Refusal> {
        let watched = self.requested(request, known)?.watched();
        let watched = watched.map_err(|why| Refusal(StatusCode::SERVICE_UNAVAILABLE, why))?;
        let snapshot = watched.topology.snapshot();
        Ok(page(watched, snapshot.description()))
    }

    /// Returns the deployment that a request names. Only names in the file of targets are accepted,
    /// so a request cannot make this program connect elsewhere.
    fn requested(&self, request: &Parts, known: &[&str]) -> Result<&Deployment, Refusal> {
        others(request, known)?;
        let mut parameters = http::parameters(request);
        match (parameters.find(|(name, _)| *name == "target"), &*self.0) {
            (Some((_, wanted)), deployments) => {
                let mut found = deployments.iter();
                let found = found.find(|deployment| deployment.name() == Some(wanted));
                let said = "no deployment has this name in the file of --targets";
                found.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, said.to_owned()))
            }
            (None, [only]) if only.is_only() => Ok(only),
            (None, _) => Err(bad("the parameter target is missing: the name of a deployment")),
        }
    }
}

/// Refuses parameters that have no effect. Prometheus sends parameters only if configured to, so
/// their sender expects an effect.
fn others(request: &Parts, known: &[&str]) -> Result<(), Refusal> {
    match http::parameters(request).find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(bad(format!("there is no parameter {name}"))),
        None => Ok(()),
    }
}

fn bad(said: impl Display) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, said.to_string())
}

fn metrics(page: &Page) -> Response<String> {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    http::typed(StatusCode::OK, content_type, page.to_string())
}

/// Returns how long a probe may wait, which is less than Prometheus waits.
fn patience(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(SCRAPE_TIMEOUT).and_then(|value| value.to_str().ok()?.parse().ok());
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let limit = limit.unwrap_or(DEFAULT_TIMEOUT).min(DEFAULT_TIMEOUT);
    limit.saturating_sub(OFFSET.min(limit / 2))
}

/// Returns the topology; if there is none yet, an empty one with the reason.
fn topology(deployment: &Deployment) -> Response<String> {
    let mut json = match deployment.watched() {
        Ok(watched) => {
            let snapshot = watched.topology.snapshot();
            json::snapshot(snapshot.description(), RoundTrips::Shown)
        }
        Err(reason) => {
            let mut json = json::snapshot(&TopologyDescription::default(), RoundTrips::Shown);
            json["error"] = reason.into();
            json
        }
    };
    if deployment.is_simulated() {
        json["simulated"] = true.into();
    }
    http::typed(StatusCode::OK, "application/json", format!("{}\n", json_line(&json)))
}

/// Returns the health of the deployment for the requested kind of operation.
fn health(
    topology: &TopologyDescription,
    settings: &Settings,
    criteria: &Criteria,
) -> Response<String> {
    // Selects nothing: a health request is not an operation and must not be counted as one.
    let explanation = explain(topology, settings, criteria);
    if explanation.eligible().next().is_some() {
        http::text(StatusCode::OK, "ok\n")
    } else {
        http::text(StatusCode::SERVICE_UNAVAILABLE, format!("{explanation:#}\n"))
    }
}

fn criteria(request: &Parts) -> Result<Criteria, Refusal> {
    let mut parameters = http::parameters(request);
    let Some((_, value)) = parameters.find(|(name, _)| *name == "read") else {
        return Ok(Criteria::write());
    };
    let mode = ReadMode::parse(value)
        .ok_or_else(|| bad(format!("{value} is not a read preference mode")))?;
    Criteria::read(ReadPreference::new(mode)).map_err(bad)
}

fn primary(topology: &TopologyDescription) -> Response<String> {
    match topology.primary() {
        Some(server) => http::text(StatusCode::OK, format!("{}\n", server.address)),
        None => http::text(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("no primary is known: {topology}\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_end_before_the_time_limit_of_prometheus() {
        let check = |header: Option<&'static str>, expected: Duration| {
            let mut headers = HeaderMap::new();
            headers.extend(header.map(|value| {
                let name = hyper::header::HeaderName::from_static(SCRAPE_TIMEOUT);
                (name, hyper::header::HeaderValue::from_static(value))
            }));
            assert_eq!(patience(&headers), expected, "{header:?}");
        };
        check(None, Duration::from_millis(9_500));
        check(Some("0.4"), Duration::from_millis(200));
        check(Some("1"), Duration::from_millis(500));
        check(Some("2"), Duration::from_millis(1_500));
        check(Some("60"), Duration::from_millis(9_500));
        check(Some("-1"), Duration::from_millis(9_500));
        check(Some("soon"), Duration::from_millis(9_500));
    }
}
