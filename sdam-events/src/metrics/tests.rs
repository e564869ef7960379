use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ::metrics::{counter, gauge, histogram, with_local_recorder};
use bson::doc;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{CheckOutFailure, ConnectionClosedReason, EventKind, SelectionFailure},
    ids::Generation,
    pool::PoolClear,
    server::{Rtt, ServerDescription, ServerType},
    topology::{TopologyDescription, TopologyType},
};

use super::{Kind, METRICS, Metric, MetricsSink, Unit, describe};
use crate::{
    queue::EventQueue,
    sink::{EventSink, Interest},
    test_support::{
        TOPOLOGY, at, check_out_failed, checked_out, closed, command, created, description, failed,
        found, heartbeat, not_found, opening, pool_cleared, ready, selection, started, succeeded,
        topology_changed, waits,
    },
};

/// The metrics as Prometheus shows them.
struct Numbers(PrometheusRecorder);

impl Numbers {
    fn new() -> Self {
        Self(PrometheusBuilder::new().build_recorder())
    }

    /// Returns the names, labels and values of all metrics, without quotation marks.
    fn values(&self) -> BTreeMap<String, f64> {
        let page = self.0.handle().render().replace('"', "");
        let samples = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = samples.map(|line| line.rsplit_once(' ').unwrap());
        pairs.map(|(key, value)| (key.to_owned(), value.parse().unwrap())).collect()
    }

    #[track_caller]
    fn check(&self, key: &str, expected: f64) {
        let values = self.values();
        let value = values.get(key).unwrap_or_else(|| panic!("no {key} in {values:#?}"));
        assert!((value - expected).abs() < 1e-9, "{key} is {value}, not {expected}");
    }
}

/// Returns the metric to which a key belongs.
fn metric(key: &str) -> &'static Metric {
    let name = key.split('{').next().unwrap();
    let name = name.strip_suffix("_sum").or(name.strip_suffix("_count")).unwrap_or(name);
    METRICS.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name} is new"))
}

/// Delivers `events`, one millisecond apart, and returns the resulting metrics.
fn measure(sink: &MetricsSink, events: Vec<EventKind>) -> Numbers {
    let numbers = Numbers::new();
    let queue = EventQueue::new(TOPOLOGY, sink.interest());
    for (millis, kind) in (0..).zip(events) {
        queue.push(at(millis), kind);
    }
    with_local_recorder(&numbers.0, || queue.drain_now(sink));
    assert_eq!(queue.sink_failed(), None);
    assert!(numbers.values().keys().all(|key| key.starts_with(metric(key).name)));
    numbers
}

fn server(number: u64, server_type: ServerType, rtt: u64) -> ServerDescription {
    let mut server = description(number, server_type);
    let millis = Duration::from_millis;
    server.rtt = Some(Rtt { average: millis(rtt), minimum: millis(rtt - 1), p90: millis(rtt + 1) });
    server
}

fn replica_set(servers: Vec<ServerDescription>) -> TopologyDescription {
    let has_primary = servers.iter().any(|server| server.server_type == ServerType::RsPrimary);
    let topology_type = if has_primary {
        TopologyType::ReplicaSetWithPrimary
    } else {
        TopologyType::ReplicaSetNoPrimary
    };
    TopologyDescription::new(topology_type, servers)
}

#[test]
fn heartbeats_are_counted_by_result_and_mode() {
    let mut stream = heartbeat(1);
    stream.awaited = true;
    let events = vec![
        started(1),
        succeeded(1, &doc! {}),
        started(1),
        failed(1),
        EventKind::ServerHeartbeatStarted(stream.clone()),
        EventKind::ServerHeartbeatSucceeded {
            heartbeat: stream,
            duration: Duration::from_secs(9),
            reply: Vec::new().into(),
        },
    ];
    let numbers = measure(&MetricsSink::new(), events);
    numbers.check("sdam_heartbeats_total{mode=poll,result=ok}", 1.0);
    numbers.check("sdam_heartbeats_total{mode=poll,result=network}", 1.0);
    numbers.check("sdam_heartbeats_total{mode=stream,result=ok}", 1.0);
    numbers.check("sdam_heartbeat_duration_seconds_sum{mode=poll}", 0.0015);
    numbers.check("sdam_heartbeat_duration_seconds_count{mode=poll}", 1.0);
    numbers.check("sdam_heartbeat_duration_seconds_sum{mode=stream}", 9.0);
}

#[test]
fn gauges_of_a_server_that_left_are_zero_or_have_no_value() {
    let before = replica_set(vec![
        server(1, ServerType::RsPrimary, 5),
        server(2, ServerType::RsSecondary, 7),
    ]);
    let after = replica_set(vec![server(1, ServerType::RsSecondary, 6)]);
    let empty = TopologyDescription::default();
    let mut events = vec![opening(1), opening(2), topology_changed(&empty, &before)];
    let numbers = measure(&MetricsSink::new(), events.clone());
    let of = |number: u64| format!("server_address=host{number},server_port=27017");
    numbers.check(&format!("sdam_server_type{{{},type=RSPrimary}}", of(1)), 1.0);
    numbers.check(&format!("sdam_server_type{{{},type=RSSecondary}}", of(2)), 1.0);
    numbers.check(&format!("sdam_rtt_average_seconds{{{}}}", of(2)), 0.007);
    numbers.check(&format!("sdam_rtt_minimum_seconds{{{}}}", of(2)), 0.006);
    numbers.check(&format!("sdam_rtt_p90_seconds{{{}}}", of(2)), 0.008);
    numbers.check("sdam_topology_type{type=ReplicaSetWithPrimary}", 1.0);
    numbers.check("sdam_servers", 2.0);
    numbers.check("sdam_writable", 1.0);

    events.push(EventKind::ServerDescriptionChanged {
        previous: Arc::new(server(2, ServerType::RsSecondary, 7)),
        new: Arc::new(description(2, ServerType::Unknown)),
    });
    let losses = format!("sdam_server_losses_total{{{}}}", of(2));
    numbers.check(&losses, 0.0);
    let lost =
        replica_set(vec![server(1, ServerType::RsPrimary, 5), description(2, ServerType::Unknown)]);
    events.push(topology_changed(&before, &lost));
    let numbers = measure(&MetricsSink::new(), events.clone());
    numbers.check(&losses, 1.0);
    // A lost server has no round-trip times; zeros would make it look fast.
    for name in ["average", "minimum", "p90"] {
        let rtt = numbers.values()[&format!("sdam_rtt_{name}_seconds{{{}}}", of(2))];
        assert!(rtt.is_nan(), "{name}");
    }

    events.push(topology_changed(&lost, &after));
    let numbers = measure(&MetricsSink::new(), events);
    // Counters never decrease.
    numbers.check(&losses, 1.0);
    numbers.check(&format!("sdam_server_type{{{},type=RSPrimary}}", of(1)), 0.0);
    numbers.check(&format!("sdam_server_type{{{},type=RSSecondary}}", of(1)), 1.0);
    numbers.check("sdam_topology_type{type=ReplicaSetWithPrimary}", 0.0);
    numbers.check("sdam_topology_type{type=ReplicaSetNoPrimary}", 1.0);
    numbers.check("sdam_servers", 1.0);
    numbers.check("sdam_writable", 0.0);
    for (key, value) in numbers.values().iter().filter(|(key, _)| key.contains("host2")) {
        let is_over =
            metric(key).kind == Kind::Counter || value.is_nan() || value.abs() < f64::EPSILON;
        assert!(is_over, "{key} is {value}");
    }
}

#[test]
fn failovers_are_counted_and_timed() {
    let with = |number| replica_set(vec![server(number, ServerType::RsPrimary, 1)]);
    let without = replica_set(vec![description(1, ServerType::Unknown)]);
    let events = vec![
        opening(1),
        topology_changed(&without, &with(1)),
        started(1),
        succeeded(1, &doc! {}),
        started(1),
        topology_changed(&with(1), &without),
        failed(1),
        topology_changed(&without, &with(2)),
    ];
    let sink = MetricsSink::new();
    let numbers = measure(&sink, events);
    numbers.check("sdam_failovers_total", 1.0);
    // The upper bound counts from the last successful check, at 3 ms, and the lower bound from the
    // loss, at 5 ms. Both end when the new primary is found, at 7 ms.
    numbers.check("sdam_failover_duration_seconds_sum", 0.004);
    numbers.check("sdam_failover_duration_min_seconds_sum", 0.002);
    numbers.check("sdam_time_without_primary_seconds", 0.004);
    numbers.check("sdam_time_without_primary_min_seconds", 0.002);
}

#[test]
fn a_silent_failover_is_recorded_when_it_cannot_be_explained_any_more() {
    let with = |number| replica_set(vec![server(number, ServerType::RsPrimary, 1)]);
    let mut stream = heartbeat(1);
    stream.awaited = true;
    let mut events = vec![
        opening(1),
        topology_changed(&TopologyDescription::default(), &with(1)),
        succeeded(1, &doc! {}),
        EventKind::ServerHeartbeatStarted(stream),
        topology_changed(&with(1), &with(2)),
    ];
    let sink = MetricsSink::new();
    let numbers = measure(&sink, events.clone());
    assert!(!numbers.values().contains_key("sdam_failover_duration_seconds_sum"));
    numbers.check("sdam_failovers_total", 1.0);
    let queue = EventQueue::new(TOPOLOGY, Interest::SDAM);
    with_local_recorder(&numbers.0, || sink.update(at(1005), &with(2), queue.pending()));
    numbers.check("sdam_failover_duration_seconds_sum", 0.002);
    numbers.check("sdam_failover_duration_min_seconds_sum", 0.0);
    numbers.check("sdam_failover_duration_min_seconds_count", 1.0);
    numbers.check("sdam_time_without_primary_seconds", 0.002);
    let last_reply = "sdam_server_last_reply_seconds{server_address=host1,server_port=27017}";
    numbers.check(last_reply, 1.003);

    let mut both = vec![server(2, ServerType::RsPrimary, 1)];
    both.push(server(1, ServerType::RsSecondary, 1));
    events.push(topology_changed(&with(2), &replica_set(both)));
    let numbers = measure(&MetricsSink::new(), events);
    numbers.check("sdam_failover_duration_seconds_sum", 0.0);
    numbers.check("sdam_failover_duration_seconds_count", 1.0);
}

#[test]
fn pool_clears_are_counted_by_reason() {
    let clear = |kind| {
        let error = Error::new(kind, Stage::Operation, "");
        pool_cleared(PoolClear::new(Generation::from_u64(1), error))
    };
    let events =
        vec![clear(ErrorKind::Network), clear(ErrorKind::Command), clear(ErrorKind::Network)];
    let numbers = measure(&MetricsSink::new(), events);
    numbers.check("sdam_pool_clears_total{reason=network}", 2.0);
    numbers.check("sdam_pool_clears_total{reason=command}", 1.0);
}

#[test]
fn selections_are_counted_by_result_and_waiting_ones_by_a_gauge() {
    let [quick, slow, late] = [selection(), selection(), selection()];
    let found = |selection| found(selection, Duration::from_millis(2));
    let timeout = not_found(&late, SelectionFailure::Timeout, Duration::from_secs(30));
    let mut events = vec![found(&quick), waits(&slow, None), waits(&late, None)];
    let measured = |events| measure(&MetricsSink::new().with_selections(), events);
    measured(events.clone()).check("sdam_selection_waiters", 2.0);
    events.extend([found(&slow), timeout]);
    let numbers = measured(events.clone());
    numbers.check("sdam_selection_waiters", 0.0);
    numbers.check("sdam_selections_total{result=ok}", 2.0);
    numbers.check("sdam_selections_total{result=timeout}", 1.0);
    numbers.check("sdam_selection_duration_seconds_sum{result=ok}", 0.004);
    numbers.check("sdam_selection_duration_seconds_sum{result=timeout}", 30.0);

    // Without `with_selections` there are no selection events.
    assert_eq!(MetricsSink::new().interest().intersection(Interest::SELECTION), Interest::NONE);
    let numbers = measure(&MetricsSink::new(), events);
    assert!(numbers.values().is_empty());
}

#[test]
fn connections_check_outs_and_commands_are_counted_by_result() {
    let duration = Duration::from_millis(500);
    let (info, _) = command(&doc! { "ping": 1 });
    let error = Error::new(ErrorKind::Network, Stage::Operation, "reset");
    let sink = MetricsSink::new().with_connections().with_commands();
    let wanted = Interest::POOLS.union(Interest::COMMANDS);
    assert!(sink.interest().contains_all(wanted));
    assert!(MetricsSink::new().interest().intersection(Interest::OPERATIONS).is_empty());
    let events = vec![
        created(),
        ready(duration),
        checked_out(duration),
        check_out_failed(CheckOutFailure::Timeout, duration),
        closed(ConnectionClosedReason::Stale, None),
        info.succeeded(duration, &[]),
        info.failed(duration, error),
    ];
    let numbers = measure(&sink, events);
    numbers.check("sdam_connections_created_total", 1.0);
    numbers.check("sdam_connection_establishment_seconds_sum", 0.5);
    numbers.check("sdam_connections_closed_total{reason=stale}", 1.0);
    numbers.check("sdam_check_outs_total{result=ok}", 1.0);
    numbers.check("sdam_check_outs_total{result=timeout}", 1.0);
    numbers.check("sdam_check_out_duration_seconds_sum{result=timeout}", 0.5);
    numbers.check("sdam_commands_total{result=ok}", 1.0);
    numbers.check("sdam_commands_total{result=network}", 1.0);
    numbers.check("sdam_command_duration_seconds_sum{result=ok}", 0.5);
}

#[test]
fn gauges_without_events_are_updated_on_request_and_every_metric_has_the_labels() {
    let sink = MetricsSink::new().with_label("client", "orders");
    let numbers = Numbers::new();
    let queue = EventQueue::new(TOPOLOGY, Interest::SDAM);
    queue.push(at(1), opening(1));
    queue.drain_now(&crate::sink::sink_fn(|_| {}));
    queue.push(at(1), opening(2));
    let topology = replica_set(vec![server(1, ServerType::RsPrimary, 9)]);
    with_local_recorder(&numbers.0, || {
        sink.update(at(5), &topology, queue.pending());
    });
    numbers.check("sdam_event_queue_depth{client=orders}", 1.0);
    numbers.check("sdam_event_queue_high_water{client=orders}", 1.0);
    let key = "sdam_rtt_average_seconds{client=orders,server_address=host1,server_port=27017}";
    numbers.check(key, 0.009);
    let values = numbers.values();
    assert!(values.keys().all(|key| key.contains("client=orders")), "{values:#?}");
}

#[test]
fn every_metric_is_described_with_the_unit_and_the_type_in_its_name() {
    let numbers = Numbers::new();
    with_local_recorder(&numbers.0, || {
        describe();
        for metric in METRICS {
            match metric.kind {
                Kind::Counter => counter!(metric.name).increment(1),
                Kind::Gauge => gauge!(metric.name).set(1),
                Kind::Histogram => histogram!(metric.name).record(1.0),
            }
        }
    });
    let page = numbers.0.handle().render();
    for Metric { name, kind, unit, description } in METRICS {
        assert_eq!(page.matches(&format!("# HELP {name} {description}\n")).count(), 1, "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_seconds"), *unit == Unit::Seconds, "{name}");
    }
}
