use std::{fmt, sync::Arc};

use hyper::{Response, StatusCode, http::request::Parts};
use metrics::with_local_recorder;
use metrics_exporter_prometheus::{
    BuildError, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use sdam::{Topology, transport::clock::Clock};
use sdam_core::{
    event::Event,
    read_preference::{ReadMode, ReadPreference},
    topology::TopologyDescription,
};
use sdam_events::{
    metrics::{MetricsSink, describe},
    sink::{EventSink, Interest},
};
use sdam_select::{Criteria, Settings, explain};

use crate::{
    http,
    json::{self, RoundTrips},
};

/// Upper bounds of the buckets of durations, in seconds: from a round trip to a slow failover.
const BUCKETS: &[f64] = &[
    0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0,
];

const INDEX: &str = "\
/metrics       metrics, in the text format of Prometheus
/topology      the description of the topology, as JSON
/healthz       200 if the deployment can be written to, else 503 and the reason
/healthz?read=MODE
               200 if it can be read with this read preference: primary,
               primaryPreferred, secondary, secondaryPreferred or nearest
/primary       the address of the primary, or 503
";

/// The metrics of one topology.
///
/// A program usually installs one shared recorder with [`metrics::set_global_recorder`]. This
/// recorder is local, so that several exporters can run independently in one process.
#[derive(Clone)]
pub(super) struct Numbers(Arc<Inner>);

struct Inner {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    sink: MetricsSink,
    clock: Arc<dyn Clock>,
}

impl Numbers {
    pub(super) fn new(sink: MetricsSink, clock: &Arc<dyn Clock>) -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets(BUCKETS)?
            .build_recorder();
        with_local_recorder(&recorder, describe);
        Ok(Self(Arc::new(Inner {
            handle: recorder.handle(),
            recorder,
            sink,
            clock: Arc::clone(clock),
        })))
    }

    /// Returns the sink that converts events to these metrics.
    pub(super) fn sink(&self) -> impl EventSink + use<> {
        self.clone()
    }

    fn render(&self, topology: &Topology) -> String {
        let Inner { sink, clock, .. } = &*self.0;
        with_local_recorder(&self.0.recorder, || {
            let snapshot = topology.snapshot();
            sink.update(clock.now(), snapshot.description(), topology.events());
        });
        self.0.handle.render()
    }
}

impl EventSink for Numbers {
    fn emit(&self, event: &Event) {
        with_local_recorder(&self.0.recorder, || self.0.sink.emit(event));
    }

    fn interest(&self) -> Interest {
        self.0.sink.interest()
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}

/// All pages of a topology.
pub(super) struct Pages {
    topology: Topology,
    settings: Settings,
    numbers: Numbers,
}

impl Pages {
    pub(super) fn new(topology: Topology, numbers: Numbers) -> Self {
        Self {
            settings: Settings::new(topology.options()),
            topology,
            numbers,
        }
    }

    /// Returns the requested page.
    pub(super) fn answer(&self, request: &Parts) -> Response<String> {
        let description = Arc::clone(self.topology.snapshot().description());
        let path = request.uri.path();
        let response = match path {
            "/" => http::text(StatusCode::OK, INDEX),
            "/metrics" => http::typed(
                StatusCode::OK,
                "text/plain; version=0.0.4; charset=utf-8",
                self.numbers.render(&self.topology),
            ),
            "/topology" => http::typed(
                StatusCode::OK,
                "application/json",
                format!("{}\n", json::snapshot(&description, RoundTrips::Shown)),
            ),
            "/healthz" => health(&description, &self.settings, request),
            "/primary" => primary(&description),
            _ => http::status(StatusCode::NOT_FOUND),
        };
        // Prometheus adds parameters only if configured to, so one is expected to have an effect.
        match http::parameters(request).next() {
            Some((name, _)) if response.status() == StatusCode::OK && path != "/healthz" => {
                http::text(
                    StatusCode::BAD_REQUEST,
                    format!("there is no parameter {name}\n"),
                )
            }
            _ => response,
        }
    }

    /// Aggregates the measurements since the last fetch.
    pub(super) fn sum_up(&self) {
        self.numbers.0.handle.run_upkeep();
    }
}

/// Returns the health of the deployment for the requested kind of operation.
fn health(
    topology: &TopologyDescription,
    settings: &Settings,
    request: &Parts,
) -> Response<String> {
    let criteria = match criteria(request) {
        Ok(criteria) => criteria,
        Err(reason) => return http::text(StatusCode::BAD_REQUEST, format!("{reason}\n")),
    };
    // Nothing is selected: a health request is not an operation and must not be counted as one.
    let explanation = explain(topology, settings, &criteria);
    if explanation.eligible().next().is_some() {
        http::text(StatusCode::OK, "ok\n")
    } else {
        http::text(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{explanation:#}\n"),
        )
    }
}

fn criteria(request: &Parts) -> Result<Criteria, String> {
    let mut criteria = Criteria::write();
    for (name, value) in http::parameters(request) {
        let mode = match name {
            "read" => ReadMode::parse(value),
            _ => return Err(format!("there is no parameter {name}")),
        };
        let mode = mode.ok_or_else(|| format!("{value} is not a read preference mode"))?;
        criteria = Criteria::read(ReadPreference::new(mode)).map_err(|error| error.to_string())?;
    }
    Ok(criteria)
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
