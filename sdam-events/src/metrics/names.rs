use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const HEARTBEATS: &str = "sdam_heartbeats_total";
pub(super) const HEARTBEAT_DURATION: &str = "sdam_heartbeat_duration_seconds";
pub(super) const RTT_AVERAGE: &str = "sdam_rtt_average_seconds";
pub(super) const RTT_MINIMUM: &str = "sdam_rtt_minimum_seconds";
pub(super) const RTT_P90: &str = "sdam_rtt_p90_seconds";
pub(super) const SERVER_TYPE: &str = "sdam_server_type";
pub(super) const SERVER_SUSPECTED: &str = "sdam_server_suspected";
pub(super) const LAST_REPLY: &str = "sdam_server_last_reply_seconds";
pub(super) const SERVER_LOSSES: &str = "sdam_server_losses";
pub(super) const TOPOLOGY_TYPE: &str = "sdam_topology_type";
pub(super) const SERVERS: &str = "sdam_servers";
pub(super) const WRITABLE: &str = "sdam_writable";
pub(super) const FAILOVERS: &str = "sdam_failovers_total";
pub(super) const FAILOVER_DURATION: &str = "sdam_failover_duration_seconds";
pub(super) const FAILOVER_DURATION_MIN: &str = "sdam_failover_duration_min_seconds";
pub(super) const TIME_WITHOUT_PRIMARY: &str = "sdam_time_without_primary_seconds";
pub(super) const TIME_WITHOUT_PRIMARY_MIN: &str = "sdam_time_without_primary_min_seconds";
pub(super) const POOL_CLEARS: &str = "sdam_pool_clears_total";
pub(super) const SELECTIONS: &str = "sdam_selections_total";
pub(super) const SELECTION_DURATION: &str = "sdam_selection_duration_seconds";
pub(super) const SELECTION_WAITERS: &str = "sdam_selection_waiters";
pub(super) const CONNECTIONS_CREATED: &str = "sdam_connections_created_total";
pub(super) const CONNECTIONS_CLOSED: &str = "sdam_connections_closed_total";
pub(super) const ESTABLISHMENT: &str = "sdam_connection_establishment_seconds";
pub(super) const CHECK_OUTS: &str = "sdam_check_outs_total";
pub(super) const CHECK_OUT_DURATION: &str = "sdam_check_out_duration_seconds";
pub(super) const COMMANDS: &str = "sdam_commands_total";
pub(super) const COMMAND_DURATION: &str = "sdam_command_duration_seconds";
pub(super) const QUEUE_DEPTH: &str = "sdam_event_queue_depth";
pub(super) const QUEUE_HIGH_WATER: &str = "sdam_event_queue_high_water";
pub(super) const QUEUE_DROPPED: &str = "sdam_event_queue_dropped_total";
pub(super) const EVENTS_DROPPED: &str = "sdam_events_dropped_total";

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

/// All metrics, in the order of the module's table.
pub const METRICS: &[Metric] = &[
    Metric {
        name: HEARTBEATS,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Checks that have ended.",
    },
    Metric {
        name: HEARTBEAT_DURATION,
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        description: "Durations of successful checks.",
    },
    Metric {
        name: RTT_AVERAGE,
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        description: "Moving average of a server's round-trip times.",
    },
    Metric {
        name: RTT_MINIMUM,
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        description: "Minimum of a server's last ten round-trip times.",
    },
    Metric {
        name: RTT_P90,
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        description: "90th percentile of a server's last ten round-trip times.",
    },
    Metric {
        name: SERVER_TYPE,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "1 for the type of the server, 0 for every other type.",
    },
    Metric {
        name: SERVER_SUSPECTED,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "1 if the server is silent while other servers answer.",
    },
    Metric {
        name: LAST_REPLY,
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        description: "Time since the last answer of a server.",
    },
    Metric {
        name: SERVER_LOSSES,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "Losses of a server since it joined the topology.",
    },
    Metric {
        name: TOPOLOGY_TYPE,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "1 for the type of the topology, 0 for every other type.",
    },
    Metric {
        name: SERVERS,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "Servers in the topology.",
    },
    Metric {
        name: WRITABLE,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "1 if a server accepts writes, else 0.",
    },
    Metric {
        name: FAILOVERS,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Failovers that have ended.",
    },
    Metric {
        name: FAILOVER_DURATION,
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        description: "Times without a primary in each failover, at most.",
    },
    Metric {
        name: FAILOVER_DURATION_MIN,
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        description: "Times without a primary in each failover, at least.",
    },
    Metric {
        name: TIME_WITHOUT_PRIMARY,
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        description: "Total time without a writable server, at most.",
    },
    Metric {
        name: TIME_WITHOUT_PRIMARY_MIN,
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        description: "Total time without a writable server, at least.",
    },
    Metric {
        name: POOL_CLEARS,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Connection pools that were cleared, unless they were paused already.",
    },
    Metric {
        name: SELECTIONS,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Server selections that have ended.",
    },
    Metric {
        name: SELECTION_DURATION,
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        description: "Durations of server selections.",
    },
    Metric {
        name: SELECTION_WAITERS,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "Server selections that are waiting.",
    },
    Metric {
        name: CONNECTIONS_CREATED,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Connections that pools have created.",
    },
    Metric {
        name: CONNECTIONS_CLOSED,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Connections that pools have closed.",
    },
    Metric {
        name: ESTABLISHMENT,
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        description: "Times to connect, greet and authenticate.",
    },
    Metric {
        name: CHECK_OUTS,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Check-outs of connections that have ended.",
    },
    Metric {
        name: CHECK_OUT_DURATION,
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        description: "Durations of check-outs.",
    },
    Metric {
        name: COMMANDS,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Commands that have ended.",
    },
    Metric {
        name: COMMAND_DURATION,
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        description: "Durations of commands.",
    },
    Metric {
        name: QUEUE_DEPTH,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "Events in the queue.",
    },
    Metric {
        name: QUEUE_HIGH_WATER,
        kind: Kind::Gauge,
        unit: Unit::Count,
        description: "The greatest number of events in the queue so far.",
    },
    Metric {
        name: QUEUE_DROPPED,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Events that the queue has dropped, because the sink was too slow.",
    },
    Metric {
        name: EVENTS_DROPPED,
        kind: Kind::Counter,
        unit: Unit::Count,
        description: "Events that a bounded channel has dropped.",
    },
];

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
