//! The pages about the proxy itself (`--status`).

use std::cell::Cell;

use hyper::{Response, StatusCode, http::request::Parts};
use sdam::{Criteria, Topology};

use super::{dial::Way, meters::Meters};
use crate::http;

const INDEX: &str = "\
/metrics     metrics, in the text format of Prometheus
/healthz     200 if clients of each port reach a member, else 503 and the reason
/-/healthy   200 while this program runs
";

/// The proxy that the pages describe.
pub(super) struct Status<'p> {
    pub(super) topology: &'p Topology<Way>,
    /// The selection criteria of each port.
    pub(super) criteria: Vec<Criteria>,
    pub(super) meters: &'p Meters,
    pub(super) is_stopping: Cell<bool>,
}

impl Status<'_> {
    /// Returns the requested page.
    pub(super) fn answer(&self, request: &Parts) -> Response<String> {
        match request.uri.path() {
            "/" => http::text(StatusCode::OK, INDEX),
            http::HEALTHY => http::text(StatusCode::OK, "ok\n"),
            "/metrics" => http::metrics(&self.meters.page()),
            "/healthz" => self.health(),
            _ => http::status(StatusCode::NOT_FOUND),
        }
    }

    fn health(&self) -> Response<String> {
        if self.is_stopping.get() {
            return http::text(StatusCode::SERVICE_UNAVAILABLE, "the proxy is stopping\n");
        }
        for criteria in &self.criteria {
            let explanation = self.topology.explain(criteria);
            if explanation.eligible().next().is_none() {
                let reason = format!("{explanation:#}\n");
                return http::text(StatusCode::SERVICE_UNAVAILABLE, reason);
            }
        }
        http::text(StatusCode::OK, "ok\n")
    }
}
