//! The metrics of one deployment.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use metrics::{Key, Label, counter, describe_gauge, gauge, histogram, with_local_recorder};
use sdam::Topology;
use sdam_core::{
    event::{Event, EventKind},
    ids::ObjectId,
    server::{ServerDescription, ServerType},
    topology::TopologyDescription,
};
use sdam_events::{
    metrics::{MetricsSink, describe},
    sink::{EventSink, Interest},
};
use sdam_select::staleness::lag;
use sdam_transport::clock::Clock;

use crate::page::{Page, Registry};

/// The metric that tells whether the first checks of a deployment have ended. Until they have, the
/// deployment has no other metrics.
const KNOWN: &str = "sdam_known";

/// The metric with the replication lag of a secondary.
const LAG: &str = "sdam_server_lag_seconds";

/// The metrics that are counters for Prometheus, although they are recorded as gauges because their
/// values are not integers.
const SUMS: [&str; 2] =
    ["sdam_time_without_primary_seconds", "sdam_time_without_primary_min_seconds"];

/// The metrics of one deployment, and the sink that converts its events into metrics.
///
/// Programs usually install one recorder for the whole process, with
/// [`metrics::set_global_recorder`]. The recorder used here is local, so that several exporters can
/// run independently in one process.
pub(super) struct Numbers {
    recorder: Registry,
    sink: MetricsSink,
    clock: Arc<dyn Clock>,
    /// True once the first checks have ended, or a look-up of the hosts has failed.
    is_known: AtomicBool,
}

impl Numbers {
    /// Creates the metrics of a deployment. All of them have the given labels.
    pub(super) fn new(labels: &[(&str, String)], clock: &Arc<dyn Clock>) -> Arc<Self> {
        let recorder = Registry::new(labels);
        with_local_recorder(&recorder, || {
            describe();
            describe_gauge!(
                KNOWN,
                "1 once the first checks of the deployment have ended; before, it has no other metrics."
            );
            describe_gauge!("sdam_up", "1 if a server of the deployment answers, else 0.");
            describe_gauge!("sdam_primary_known", "1 if a replica set's primary is known.");
            describe_gauge!(
                LAG,
                "Lag of a secondary behind the primary, as old as the last checks."
            );
            describe_gauge!("sdam_build_info", "1, with the version of this program.");
            // Create these metrics now: if a series began with its first event, queries would not
            // see that event as an increase.
            counter!("sdam_failovers_total").absolute(0);
            let _ = histogram!("sdam_failover_duration_seconds");
            let _ = histogram!("sdam_failover_duration_min_seconds");
            gauge!("sdam_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        });
        let numbers = Self {
            recorder,
            sink: MetricsSink::new(),
            clock: Arc::clone(clock),
            is_known: AtomicBool::new(false),
        };
        // Start with an empty topology, so that the metrics have the same labels before the hosts
        // of the deployment are known.
        let empty = Arc::<TopologyDescription>::default();
        let kind =
            EventKind::TopologyDescriptionChanged { previous: Arc::clone(&empty), new: empty };
        numbers.emit(&Event::new(0, clock.now(), ObjectId::default(), kind));
        Arc::new(numbers)
    }

    /// Records that the state of the deployment is known.
    pub(super) fn set_known(&self) {
        self.is_known.store(true, Ordering::Release);
    }

    /// Returns the metrics. Without a topology, the metrics describe a deployment that does not
    /// answer. Before the state of the deployment is known, returns only the metric `KNOWN`,
    /// because the deployment must not appear to be down.
    pub(super) fn page(&self, topology: Option<&Topology>) -> Page {
        let Self { sink, clock, recorder, is_known } = self;
        let is_known = is_known.load(Ordering::Acquire);
        let snapshot = topology.map(Topology::snapshot);
        let empty = TopologyDescription::default();
        let description = snapshot.as_ref().map_or(&empty, |it| it.description());
        with_local_recorder(recorder, || {
            if let Some(topology) = topology {
                sink.update(clock.now(), description, topology.events());
            }
            let mut servers = description.servers().iter();
            let is_up = servers.any(|server| server.server_type.is_available());
            gauge!("sdam_up").set(u8::from(is_up));
            for server in description.servers() {
                if let Some(lag) = lag(description, server) {
                    gauge!(LAG, labels(server)).set(lag);
                }
            }
            let has_primary = description.primary().is_some();
            gauge!("sdam_primary_known").set(u8::from(has_primary));
            gauge!(KNOWN).set(u8::from(is_known));
        });
        // Remove series that no longer apply. If such a series stayed at zero, an alert about it
        // would never end.
        recorder.retain(|key| {
            let is_secondary = |server: &ServerDescription| {
                server.server_type == ServerType::RsSecondary || key.name() != LAG
            };
            is_current(key, description, is_secondary)
        });
        let mut page = recorder.page();
        page.0.retain(|name, _| is_known || name == KNOWN);
        for name in SUMS {
            if let Some(mut metric) = page.0.remove(name) {
                metric.kind = "counter";
                page.0.insert(format!("{name}_total"), metric);
            }
        }
        page
    }
}

impl EventSink for Numbers {
    fn emit(&self, event: &Event) {
        with_local_recorder(&self.recorder, || self.sink.emit(event));
        if let EventKind::TopologyDescriptionChanged { new, .. } = &event.kind
            && is_checked(new)
        {
            self.set_known();
        }
    }

    fn interest(&self) -> Interest {
        self.sink.interest()
    }
}

sdam_core::opaque!(Numbers);

/// Returns whether every server has been checked, or a writable one is known.
fn is_checked(topology: &TopologyDescription) -> bool {
    let mut servers = topology.servers().iter();
    topology.has_writable_server()
        || servers.len() > 0
            && servers.all(|server| server.server_type.is_available() || server.error.is_some())
}

fn labels(server: &ServerDescription) -> Vec<Label> {
    let host = Label::new("server.address", server.address.host().to_owned());
    let port = server.address.port().map(|port| Label::new("server.port", port.to_string()));
    [host].into_iter().chain(port).collect()
}

/// Returns whether the series `key` still applies: either it is not about a server, or it is about
/// a current server that satisfies `has`.
fn is_current(
    key: &Key,
    topology: &TopologyDescription,
    has: impl Fn(&ServerDescription) -> bool,
) -> bool {
    let label = |name| key.labels().find(|own| own.key() == name).map(Label::value);
    let Some(host) = label("server.address") else {
        return true;
    };
    let port = label("server.port").and_then(|port| port.parse().ok());
    let mut servers = topology.servers().iter();
    servers
        .any(|server| server.address.host() == host && server.address.port() == port && has(server))
}
