//! The metrics of one deployment.

use std::{collections::BTreeMap, sync::Arc};

use metrics::{counter, describe_gauge, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{
    BuildError, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use sdam::{Topology, transport::clock::Clock};
use sdam_core::{
    event::{Event, EventKind},
    ids::ObjectId,
    topology::TopologyDescription,
};
use sdam_events::{
    metrics::{MetricsSink, describe},
    sink::{EventSink, Interest},
};

/// Upper bounds of the duration buckets, in seconds: from a round trip to a slow failover.
const BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0];

/// The metrics of one deployment, and the sink that converts its events into metrics.
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
    /// Creates the metrics of a deployment, all with these labels.
    pub(super) fn new(
        labels: &[(&str, String)],
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new().set_buckets(BUCKETS)?;
        for (name, value) in labels {
            builder = builder.add_global_label(*name, value);
        }
        let recorder = builder.build_recorder();
        with_local_recorder(&recorder, || {
            describe();
            describe_gauge!("sdam_up", "1 if a server of the deployment answers, else 0.");
            describe_gauge!("sdam_primary_known", "1 if a replica set's primary is known.");
            describe_gauge!("sdam_build_info", "1, with the version of this program.");
            // If the first failover created its metrics, queries would not see it.
            counter!("sdam_failovers_total").absolute(0);
            let _ = histogram!("sdam_failover_duration_seconds");
            let _ = histogram!("sdam_failover_duration_min_seconds");
            gauge!("sdam_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        });
        let numbers = Self(Arc::new(Inner {
            handle: recorder.handle(),
            recorder,
            sink: MetricsSink::new(),
            clock: Arc::clone(clock),
        }));
        // The labels are the same before the hosts of a deployment are known.
        let empty = Arc::<TopologyDescription>::default();
        let kind =
            EventKind::TopologyDescriptionChanged { previous: Arc::clone(&empty), new: empty };
        numbers.emit(&Event::new(0, clock.now(), ObjectId::default(), kind));
        Ok(numbers)
    }

    /// Returns the metrics in the text format of Prometheus. Without a topology, they describe a
    /// deployment that does not answer.
    pub(super) fn render(&self, topology: Option<&Topology>) -> String {
        let Inner { sink, clock, .. } = &*self.0;
        let snapshot = topology.map(Topology::snapshot);
        let empty = TopologyDescription::default();
        let description = snapshot.as_ref().map_or(&empty, |it| it.description());
        with_local_recorder(&self.0.recorder, || {
            if let Some(topology) = topology {
                sink.update(clock.now(), description, topology.events());
            }
            let mut servers = description.servers().iter();
            let is_up = servers.any(|server| server.server_type.is_available());
            gauge!("sdam_up").set(u8::from(is_up));
            let has_primary = description.primary().is_some();
            gauge!("sdam_primary_known").set(u8::from(has_primary));
        });
        without_former_servers(&self.0.handle.render(), description)
    }

    /// Aggregates the measurements since the last fetch.
    pub(super) fn sum_up(&self) {
        self.0.handle.run_upkeep();
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

sdam_core::opaque!(Numbers);

/// Removes the series of servers that have left the topology: a series that stays at zero would
/// cause an alert that never ends.
fn without_former_servers(page: &str, topology: &TopologyDescription) -> String {
    let servers = topology.servers().iter();
    let current: Vec<_> = servers
        .map(|server| {
            let host = format!("server_address=\"{}\"", server.address.host());
            match server.address.port() {
                Some(port) => format!("{host},server_port=\"{port}\""),
                None => host,
            }
        })
        .collect();
    let is_current = |line: &&str| {
        !line.contains("server_address=\"") || current.iter().any(|it| line.contains(it))
    };
    page.split_inclusive('\n').filter(is_current).collect()
}

/// Merges pages so that the samples of a metric directly follow its description, as the format
/// requires.
pub(super) fn merge(pages: impl IntoIterator<Item = String>) -> String {
    let mut families: BTreeMap<String, (String, String)> = BTreeMap::new();
    for page in pages {
        let mut name = String::new();
        for line in page.split_inclusive('\n') {
            let comment = line.strip_prefix("# ").and_then(|line| line.split(' ').nth(1));
            if let Some(family) = comment {
                family.clone_into(&mut name);
            }
            let (head, samples) = families.entry(name.clone()).or_default();
            if comment.is_none() {
                samples.push_str(line);
            } else if !head.contains(line) {
                head.push_str(line);
            }
        }
    }
    let text = |(head, samples): (String, String)| head + samples.trim_end_matches('\n') + "\n\n";
    families.into_values().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_several_pages_follow_one_description() {
        let page = |name: &str| {
            format!(
                "# HELP a A.\n# TYPE a gauge\na{{d=\"{name}\"}} 1\n\n# TYPE b gauge\nb{{d=\"{name}\"}} 2\n\n"
            )
        };
        assert_eq!(
            merge([page("x"), page("y")]),
            "# HELP a A.\n# TYPE a gauge\na{d=\"x\"} 1\n\na{d=\"y\"} 1\n\n\
             # TYPE b gauge\nb{d=\"x\"} 2\n\nb{d=\"y\"} 2\n\n"
        );
    }
}
