//! Metrics through the [`metrics`] facade, for any exporter that the program installs.
//!
//! | name | type | unit | labels | meaning |
//! | --- | --- | --- | --- | --- |
//! | `sdam_heartbeats_total` | counter | 1 | `result`, `mode` | checks that have ended |
//! | `sdam_heartbeat_duration_seconds` | histogram | s | `mode` | duration of successful checks |
//! | `sdam_rtt_average_seconds` | gauge | s | server | moving average of round-trip times |
//! | `sdam_rtt_minimum_seconds` | gauge | s | server | minimum of the last ten round-trip times |
//! | `sdam_rtt_p90_seconds` | gauge | s | server | 90th percentile of the last ten round-trip times |
//! | `sdam_server_type` | gauge | 0, 1 | server, `type` | 1 for the role the server has |
//! | `sdam_server_suspected` | gauge | 0, 1 | server | 1 if the server is silent while others answer |
//! | `sdam_server_last_reply_seconds` | gauge | s | server | time since the server's last answer, to a check or a measured round trip |
//! | `sdam_server_losses_total` | counter | 1 | server | number of times the server was lost |
//! | `sdam_topology_type` | gauge | 0, 1 | `type` | 1 for the type the topology has |
//! | `sdam_servers` | gauge | 1 | - | servers in the topology |
//! | `sdam_writable` | gauge | 0, 1 | - | 1 if there is a server for writes |
//! | `sdam_failovers_total` | counter | 1 | - | failovers that have ended |
//! | `sdam_failover_duration_seconds` | histogram | s | - | upper bound of the time without a primary in each failover |
//! | `sdam_failover_duration_min_seconds` | histogram | s | - | lower bound of the time without a primary in each failover |
//! | `sdam_time_without_primary_seconds` | gauge | s | - | upper bound of the total time without a primary |
//! | `sdam_time_without_primary_min_seconds` | gauge | s | - | lower bound of the total time without a primary |
//! | `sdam_pool_clears_total` | counter | 1 | `reason` | clears of pools that were not paused |
//! | `sdam_selections_total` | counter | 1 | `result` | server selections that have ended |
//! | `sdam_selection_duration_seconds` | histogram | s | `result` | duration of selections |
//! | `sdam_selection_waiters` | gauge | 1 | - | selections currently waiting for a server |
//! | `sdam_connections_created_total` | counter | 1 | - | connections that pools have created |
//! | `sdam_connections_closed_total` | counter | 1 | `reason` | connections that pools have closed |
//! | `sdam_connection_establishment_seconds` | histogram | s | - | time to connect, exchange hello and authenticate |
//! | `sdam_check_outs_total` | counter | 1 | `result` | check-outs of connections that have ended |
//! | `sdam_check_out_duration_seconds` | histogram | s | `result` | duration of check-outs |
//! | `sdam_commands_total` | counter | 1 | `result` | commands that have ended |
//! | `sdam_command_duration_seconds` | histogram | s | `result` | duration of commands |
//! | `sdam_event_queue_depth` | gauge | 1 | - | events not delivered yet |
//! | `sdam_event_queue_high_water` | gauge | 1 | - | the maximum depth so far |
//! | `sdam_event_queue_dropped_total` | counter | 1 | - | events the queue has dropped |
//!
//! The total times without a primary never decrease, but counters of the facade are integers. The
//! totals are therefore gauges here; an exporter may declare them as counters, as `sdam export`
//! does (`sdam_time_without_primary_seconds_total`).
//!
//! A time without a primary has [bounds](crate::facts::Outage::without_primary). The bounds differ
//! if the loss was silent: the lower bound counts from the time when the loss was noticed or the
//! server became suspect, the upper bound from the last answer of the old primary.
//!
//! The names are sdam's own, because OpenTelemetry's conventions for database clients define
//! metrics for connections and operations, but none for discovery. Labels have OpenTelemetry's
//! names where such names exist.
//!
//! | label | values |
//! | --- | --- |
//! | server | two labels, `server.address` and `server.port` (absent for sockets) |
//! | `mode` | `poll`, or `stream` for checks whose reply the server delays until something changes |
//! | `result` of heartbeats and commands, `reason` of clears | `ok`, or an [error kind](sdam_core::error::ErrorKind::as_str) |
//! | `result` of check-outs | `ok`, or a [failure](sdam_core::event::CheckOutFailure::as_str) |
//! | `reason` of closed connections | a [reason](sdam_core::event::ConnectionClosedReason::as_str) |
//! | `result` of selections | `ok`, or a [failure](sdam_core::event::SelectionFailure::as_str) |
//! | `type` | the specification's [server](sdam_core::server::ServerType::as_str) or [topology type](sdam_core::topology::TopologyType::as_str) |
//!
//! The facade cannot remove a gauge, so a gauge without a value is NaN: the round-trip times of a
//! server that is lost or has left, and the time since the last reply of a server that has left.
//! The other gauges of a server that has left are zero. (Exporters can be configured to drop idle
//! gauges, and `sdam export` removes both kinds of gauges.)

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use ::metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use sdam_core::{
    address::ServerAddress,
    error::ErrorKind,
    event::{Event, EventKind, Selection},
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};

use crate::{
    facts::{Fact, Facts, Failover},
    queue::PendingEvents,
    sink::{EventSink, Interest, lock},
};

#[cfg(test)]
mod tests;

/// A sink that turns the events of one topology into metrics.
///
/// The recorder may be installed at any time: metrics are looked up at each event. Metrics that
/// change without an event are set by [`update`](Self::update).
///
/// ```
/// use std::sync::Arc;
/// use sdam_events::metrics::{self, MetricsSink};
///
/// metrics::describe();
/// // A label distinguishes the topologies of one program.
/// let sink = Arc::new(MetricsSink::new().with_label("client", "orders").with_selections());
/// # drop(sink);
/// ```
#[derive(Debug, Default)]
pub struct MetricsSink {
    labels: Vec<Label>,
    /// Events that the sink receives in addition to those that every metrics sink needs.
    more: Interest,
    state: Mutex<MetricsState>,
}

#[derive(Debug, Default)]
struct MetricsState {
    facts: Facts,
    /// A failover whose duration is not recorded yet, because a late answer from the old primary
    /// may still explain it.
    unexplained: Option<Failover>,
    servers: BTreeMap<ServerAddress, ServerType>,
    topology_type: Option<TopologyType>,
    /// The waiting selections, keyed by the address of their `Selection`, which is kept alive so
    /// that no other selection can have the same address.
    waiting: BTreeMap<usize, Arc<Selection>>,
}

impl MetricsSink {
    /// Creates a sink for all metrics except those of selections, connections and commands. The
    /// metrics have no additional labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the label `name` with the given value to each metric.
    #[must_use]
    pub fn with_label(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.labels.push(Label::new(name, value.into()));
        self
    }

    /// Adds the metrics of selections; each selection then publishes two events.
    #[must_use]
    pub fn with_selections(mut self) -> Self {
        self.more = self.more.union(Interest::SELECTION);
        self
    }

    /// Adds the metrics of connections and check-outs; each operation then publishes three events.
    #[must_use]
    pub fn with_connections(mut self) -> Self {
        self.more = self.more.union(Interest::POOLS);
        self
    }

    /// Adds the metrics of commands; each command then publishes two events, with copies of the
    /// command and the reply.
    #[must_use]
    pub fn with_commands(mut self) -> Self {
        self.more = self.more.union(Interest::COMMANDS);
        self
    }

    /// Sets the gauges that change without an event: round-trip times, the times since the last
    /// replies and without a primary, and the state of the queue. Call this method before the
    /// metrics are read, or every few seconds.
    pub fn update(&self, now: Instant, topology: &TopologyDescription, queue: PendingEvents<'_>) {
        for server in topology.servers() {
            self.set_rtt(server);
        }
        let mut state = lock(&self.state);
        for (address, server) in state.facts.servers() {
            if let Some(last) = server.last_answer {
                gauge!(LAST_REPLY, self.of_server(address)).set(now.since(last));
            }
        }
        self.set_time_without_primary(&mut state, now);
        drop(state);
        gauge!(QUEUE_DEPTH, self.labels.clone()).set(queue.depth() as f64);
        gauge!(QUEUE_HIGH_WATER, self.labels.clone()).set(queue.high_water() as f64);
        counter!(QUEUE_DROPPED, self.labels.clone()).absolute(queue.dropped());
    }

    fn with(&self, name: &'static str, value: &'static str) -> Vec<Label> {
        let mut labels = self.labels.clone();
        labels.push(Label::from_static_parts(name, value));
        labels
    }

    fn of_server(&self, address: &ServerAddress) -> Vec<Label> {
        let mut labels = self.labels.clone();
        labels.push(Label::new("server.address", address.host().to_owned()));
        if let Some(port) = address.port() {
            labels.push(Label::new("server.port", port.to_string()));
        }
        labels
    }

    fn heartbeat(&self, result: &'static str, awaited: bool, success: Option<Duration>) {
        let mut labels = self.with("mode", if awaited { "stream" } else { "poll" });
        if let Some(duration) = success {
            histogram!(HEARTBEAT_DURATION, labels.clone()).record(duration);
        }
        labels.push(Label::from_static_parts("result", result));
        counter!(HEARTBEATS, labels).increment(1);
    }

    fn set_rtt(&self, server: &ServerDescription) {
        // A round-trip time of zero would make the server look fast, so the gauges are NaN instead.
        let Some(rtt) = server.rtt else {
            return self.set_no_rtt(&server.address);
        };
        let labels = self.of_server(&server.address);
        gauge!(RTT_AVERAGE, labels.clone()).set(rtt.average);
        gauge!(RTT_MINIMUM, labels.clone()).set(rtt.minimum);
        gauge!(RTT_P90, labels).set(rtt.p90);
    }

    fn set_no_rtt(&self, address: &ServerAddress) {
        for name in [RTT_AVERAGE, RTT_MINIMUM, RTT_P90] {
            gauge!(name, self.of_server(address)).set(f64::NAN);
        }
    }

    fn set_server_type(&self, address: &ServerAddress, server_type: ServerType, is_so: bool) {
        let mut labels = self.of_server(address);
        labels.push(Label::from_static_parts("type", server_type.as_str()));
        gauge!(SERVER_TYPE, labels).set(flag(is_so));
    }

    fn set_suspected(&self, address: &ServerAddress, is_so: bool) {
        gauge!(SERVER_SUSPECTED, self.of_server(address)).set(flag(is_so));
    }

    /// Adds to the losses of a server. Adding zero creates the counter before the first loss, so
    /// that queries see the first loss as an increase.
    fn add_losses(&self, address: &ServerAddress, losses: u64) {
        counter!(SERVER_LOSSES, self.of_server(address)).increment(losses);
    }

    /// Sets the gauges of servers to match the topology.
    fn set_servers(&self, state: &mut MetricsState, topology: &TopologyDescription) {
        let current: BTreeMap<ServerAddress, ServerType> = topology
            .servers()
            .iter()
            .map(|server| (server.address.clone(), server.server_type))
            .collect();
        for (address, old) in &state.servers {
            match current.get(address) {
                Some(new) if new == old => {}
                Some(_) => self.set_server_type(address, *old, false),
                None => {
                    self.set_server_type(address, *old, false);
                    self.set_no_rtt(address);
                    gauge!(LAST_REPLY, self.of_server(address)).set(f64::NAN);
                }
            }
        }
        for server in topology.servers() {
            if state.servers.get(&server.address) != Some(&server.server_type) {
                self.set_server_type(&server.address, server.server_type, true);
            }
            if !state.servers.contains_key(&server.address) {
                self.add_losses(&server.address, 0);
            }
            self.set_rtt(server);
        }
        gauge!(SERVERS, self.labels.clone()).set(current.len() as f64);
        state.servers = current;
    }

    fn set_topology(&self, state: &mut MetricsState, topology: &TopologyDescription) {
        let new = topology.topology_type();
        if let Some(old) = state.topology_type.replace(new)
            && old != new
        {
            gauge!(TOPOLOGY_TYPE, self.with("type", old.as_str())).set(0.0);
        }
        gauge!(TOPOLOGY_TYPE, self.with("type", new.as_str())).set(1.0);
        let writable = flag(topology.accepts_writes());
        gauge!(WRITABLE, self.labels.clone()).set(writable);
        self.set_servers(state, topology);
    }

    /// Sets the times without a primary, and records a failover that can no longer be explained by
    /// a late answer.
    fn set_time_without_primary(&self, state: &mut MetricsState, now: Instant) {
        if let Some(failover) = state.unexplained.take_if(|it| !it.may_be_explained(now)) {
            self.record(&failover);
        }
        let without = state.facts.time_without_writes(now);
        gauge!(TIME_WITHOUT_PRIMARY, self.labels.clone()).set(without.at_most);
        gauge!(TIME_WITHOUT_PRIMARY_MIN, self.labels.clone()).set(without.at_least);
    }

    fn record(&self, failover: &Failover) {
        let without = failover.without_primary();
        histogram!(FAILOVER_DURATION, self.labels.clone()).record(without.at_most);
        histogram!(FAILOVER_DURATION_MIN, self.labels.clone()).record(without.at_least);
    }

    fn follow(&self, state: &mut MetricsState, fact: Fact) {
        match fact {
            Fact::FailoverEnded(failover) => {
                counter!(FAILOVERS, self.labels.clone()).increment(1);
                if let Some(earlier) = state.unexplained.replace(failover) {
                    self.record(&earlier);
                }
            }
            Fact::FailoverExplained(failover) => state.unexplained = Some(failover),
            Fact::ServerLost { address, .. } => self.add_losses(&address, 1),
            _ => {}
        }
    }

    fn selection_ended(
        &self,
        state: &mut MetricsState,
        selection: &Arc<Selection>,
        result: &'static str,
        duration: Duration,
    ) {
        self.ended([SELECTIONS, SELECTION_DURATION], result, duration);
        if state.waiting.remove(&identity(selection)).is_some() {
            self.set_waiters(state);
        }
    }

    /// Counts an operation that has ended, and records its duration.
    fn ended(&self, [count, time]: [&'static str; 2], result: &'static str, duration: Duration) {
        let labels = self.with("result", result);
        histogram!(time, labels.clone()).record(duration);
        counter!(count, labels).increment(1);
    }

    /// Counts an event of a pool, a connection or a command.
    fn operation(&self, kind: &EventKind) {
        match kind {
            EventKind::ConnectionCreated { .. } => {
                counter!(CONNECTIONS_CREATED, self.labels.clone()).increment(1);
            }
            EventKind::ConnectionReady { duration, .. } => {
                histogram!(ESTABLISHMENT, self.labels.clone()).record(*duration);
            }
            EventKind::ConnectionClosed { reason, .. } => {
                let labels = self.with("reason", reason.as_str());
                counter!(CONNECTIONS_CLOSED, labels).increment(1);
            }
            EventKind::ConnectionCheckedOut { duration, .. } => {
                self.ended(CHECK_OUT, "ok", *duration);
            }
            EventKind::ConnectionCheckOutFailed { reason, duration, .. } => {
                self.ended(CHECK_OUT, reason.as_str(), *duration);
            }
            EventKind::CommandSucceeded { duration, .. } => self.ended(COMMAND, "ok", *duration),
            EventKind::CommandFailed { failure, duration, .. } => {
                self.ended(COMMAND, failure.kind().as_str(), *duration);
            }
            _ => {}
        }
    }

    fn set_waiters(&self, state: &MetricsState) {
        gauge!(SELECTION_WAITERS, self.labels.clone()).set(state.waiting.len() as f64);
    }
}

impl EventSink for MetricsSink {
    fn emit(&self, event: &Event) {
        let mut state = lock(&self.state);
        for fact in state.facts.observe(event) {
            self.follow(&mut state, fact);
        }
        match &event.kind {
            EventKind::TopologyDescriptionChanged { new, .. } => {
                self.set_topology(&mut state, new);
                self.set_time_without_primary(&mut state, event.at);
            }
            EventKind::ServerSuspected { address, .. } => self.set_suspected(address, true),
            EventKind::ServerSuspicionEnded { address, .. } => self.set_suspected(address, false),
            EventKind::ServerHeartbeatSucceeded { heartbeat, duration, .. } => {
                self.heartbeat("ok", heartbeat.awaited, Some(*duration));
            }
            EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
                self.heartbeat(failure.kind().as_str(), heartbeat.awaited, None);
            }
            EventKind::PoolCleared { clear, .. } => {
                let reason: ErrorKind = clear.cause.kind();
                counter!(POOL_CLEARS, self.with("reason", reason.as_str())).increment(1);
            }
            EventKind::ServerSelectionWaiting { selection, .. } => {
                let key = identity(selection);
                state.waiting.insert(key, Arc::clone(selection));
                self.set_waiters(&state);
            }
            EventKind::ServerSelectionSucceeded { selection, duration, .. } => {
                self.selection_ended(&mut state, selection, "ok", *duration);
            }
            EventKind::ServerSelectionFailed { selection, reason, duration, .. } => {
                self.selection_ended(&mut state, selection, reason.as_str(), *duration);
            }
            kind => self.operation(kind),
        }
    }

    fn interest(&self) -> Interest {
        Interest::SDAM.union(Facts::INTEREST).union(Interest::POOL_STATES).union(self.more)
    }
}

/// The name and description of one metric.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// The metric's name.
    pub name: &'static str,
    /// The metric's type.
    pub kind: Kind,
    /// The metric's unit.
    pub unit: Unit,
    /// A description in one sentence.
    pub description: &'static str,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that never decreases.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// A distribution of values.
    Histogram,
}

/// Declares a constant for each metric's name, and the table of all metrics.
macro_rules! metrics {
    ($($name:ident: $kind:ident $unit:ident = $text:literal, $description:literal;)*) => {
        $(const $name: &str = $text;)*

        /// All metrics, in the order of the module's table.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            description: $description,
        }),*];
    };
}

metrics! {
    HEARTBEATS: Counter Count = "sdam_heartbeats_total", "Checks that have ended.";
    HEARTBEAT_DURATION: Histogram Seconds = "sdam_heartbeat_duration_seconds",
        "Durations of successful checks.";
    RTT_AVERAGE: Gauge Seconds = "sdam_rtt_average_seconds",
        "Moving average of a server's round-trip times.";
    RTT_MINIMUM: Gauge Seconds = "sdam_rtt_minimum_seconds",
        "Minimum of a server's last ten round-trip times.";
    RTT_P90: Gauge Seconds = "sdam_rtt_p90_seconds",
        "90th percentile of a server's last ten round-trip times.";
    SERVER_TYPE: Gauge Count = "sdam_server_type",
        "1 for the type of the server, 0 for every other type.";
    SERVER_SUSPECTED: Gauge Count = "sdam_server_suspected",
        "1 if the server is silent while other servers answer.";
    LAST_REPLY: Gauge Seconds = "sdam_server_last_reply_seconds",
        "Time since the last answer of a server.";
    SERVER_LOSSES: Counter Count = "sdam_server_losses_total",
        "Losses of a server that was available before.";
    TOPOLOGY_TYPE: Gauge Count = "sdam_topology_type",
        "1 for the type of the topology, 0 for every other type.";
    SERVERS: Gauge Count = "sdam_servers", "Servers in the topology.";
    WRITABLE: Gauge Count = "sdam_writable", "1 if a server accepts writes, else 0.";
    FAILOVERS: Counter Count = "sdam_failovers_total", "Failovers that have ended.";
    FAILOVER_DURATION: Histogram Seconds = "sdam_failover_duration_seconds",
        "Times without a primary in each failover, at most.";
    FAILOVER_DURATION_MIN: Histogram Seconds = "sdam_failover_duration_min_seconds",
        "Times without a primary in each failover, at least.";
    TIME_WITHOUT_PRIMARY: Gauge Seconds = "sdam_time_without_primary_seconds",
        "Total time without a writable server, at most.";
    TIME_WITHOUT_PRIMARY_MIN: Gauge Seconds = "sdam_time_without_primary_min_seconds",
        "Total time without a writable server, at least.";
    POOL_CLEARS: Counter Count = "sdam_pool_clears_total",
        "Connection pools that were cleared, unless they were paused already.";
    SELECTIONS: Counter Count = "sdam_selections_total", "Server selections that have ended.";
    SELECTION_DURATION: Histogram Seconds = "sdam_selection_duration_seconds",
        "Durations of server selections.";
    SELECTION_WAITERS: Gauge Count = "sdam_selection_waiters",
        "Server selections that are waiting.";
    CONNECTIONS_CREATED: Counter Count = "sdam_connections_created_total",
        "Connections that pools have created.";
    CONNECTIONS_CLOSED: Counter Count = "sdam_connections_closed_total",
        "Connections that pools have closed.";
    ESTABLISHMENT: Histogram Seconds = "sdam_connection_establishment_seconds",
        "Times to connect, greet and authenticate.";
    CHECK_OUTS: Counter Count = "sdam_check_outs_total",
        "Check-outs of connections that have ended.";
    CHECK_OUT_DURATION: Histogram Seconds = "sdam_check_out_duration_seconds",
        "Durations of check-outs.";
    COMMANDS: Counter Count = "sdam_commands_total", "Commands that have ended.";
    COMMAND_DURATION: Histogram Seconds = "sdam_command_duration_seconds", "Durations of commands.";
    QUEUE_DEPTH: Gauge Count = "sdam_event_queue_depth", "Events in the queue.";
    QUEUE_HIGH_WATER: Gauge Count = "sdam_event_queue_high_water",
        "The greatest number of events in the queue so far.";
    QUEUE_DROPPED: Counter Count = "sdam_event_queue_dropped_total",
        "Events that the queue has dropped, because the sink was too slow.";
}

/// Registers units and descriptions with the installed recorder.
pub fn describe() {
    for metric in METRICS {
        let Metric { name, kind, unit, description } = *metric;
        match kind {
            Kind::Counter => describe_counter!(name, unit, description),
            Kind::Gauge => describe_gauge!(name, unit, description),
            Kind::Histogram => describe_histogram!(name, unit, description),
        }
    }
}

const CHECK_OUT: [&str; 2] = [CHECK_OUTS, CHECK_OUT_DURATION];
const COMMAND: [&str; 2] = [COMMANDS, COMMAND_DURATION];

fn identity(selection: &Arc<Selection>) -> usize {
    Arc::as_ptr(selection).addr()
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}
