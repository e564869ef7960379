use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

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
        $(pub(super) const $name: &str = $text;)*

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
