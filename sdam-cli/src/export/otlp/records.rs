//! Translates the events of a deployment into log records and spans.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::SystemTime,
};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    logs::v1::{LogRecord, SeverityNumber},
    trace::v1::{
        Span,
        span::{Event as Split, SpanKind},
    },
};
use sdam::{Backend, transport::clock::Clock};
use sdam_core::{
    address::ServerAddress,
    event::{Event, EventKind},
    rng::Rng,
    server::ServerDescription,
    time::Instant,
    topology::TopologyDescription,
};
use sdam_events::{
    facts::{Fact, Facts, Failover},
    record::Origin,
    sink::{EventSink, Interest},
};

use super::{
    messages::{self, attribute, text},
    queue::Queues,
};
use crate::lock::lock;

/// The maximum number of pool clears to remember until the next failover ends.
const MAX_CLEARS: usize = 16;

/// A sink that queues a log record for each change of a deployment, and a span for each failover.
pub(super) struct Records {
    queues: Queues,
    /// The attributes of every record.
    labels: Vec<KeyValue>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    facts: Facts,
    /// The pool clears since the last failover: the time, and the server whose pool was cleared.
    clears: Vec<(Instant, ServerAddress)>,
    ids: Rng,
}

impl Records {
    /// Creates a sink for the events of the deployment that has the given `labels`.
    pub(super) fn new(labels: &[(&str, String)], backend: &Backend, queues: Queues) -> Self {
        let labels = labels.iter();
        Self {
            queues,
            labels: labels.map(|(name, value)| attribute(name, value)).collect(),
            clock: Arc::clone(&backend.clock),
            state: Mutex::new(State {
                facts: Facts::new(),
                clears: Vec::new(),
                ids: Rng::new(u64::from_be_bytes(backend.unique_bytes())),
            }),
        }
    }

    fn log(
        &self,
        time: u64,
        name: &str,
        severity: SeverityNumber,
        body: &dyn fmt::Display,
        attributes: impl IntoIterator<Item = KeyValue>,
    ) -> LogRecord {
        LogRecord {
            time_unix_nano: time,
            observed_time_unix_nano: time,
            severity_number: severity.into(),
            severity_text: if severity == SeverityNumber::Warn { "WARN" } else { "INFO" }
                .to_owned(),
            body: Some(text(body.to_string())),
            attributes: self.labels.iter().cloned().chain(attributes).collect(),
            event_name: name.to_owned(),
            ..LogRecord::default()
        }
    }

    /// Returns the log record for a new server type, or `None` if the type is unchanged.
    fn server(
        &self,
        time: u64,
        previous: &ServerDescription,
        new: &ServerDescription,
    ) -> Option<LogRecord> {
        let (old, now) = (previous.server_type, new.server_type);
        if old == now {
            return None;
        }
        let error = new.error.as_ref().map_or(String::new(), |error| format!(": {error:#}"));
        let body = format!("{}: {old} -> {now}{error}", new.address);
        let mut attributes = of_server(&new.address);
        attributes.push(attribute("sdam.server.type", now.as_str()));
        attributes.push(attribute("sdam.server.previous_type", old.as_str()));
        if let Some(error) = &new.error {
            attributes.push(attribute("error.type", error.kind().as_str()));
        }
        let is_lost = old.is_available() && !now.is_available();
        let severity = if is_lost { SeverityNumber::Warn } else { SeverityNumber::Info };
        Some(self.log(time, "sdam.server.changed", severity, &body, attributes))
    }

    /// Returns the log record for a fact, or `None` if the log record for a server already states
    /// this fact.
    fn fact(&self, time: u64, fact: &Fact) -> Option<LogRecord> {
        let (name, severity, attributes) = match fact {
            Fact::PrimaryChanged { old, new, .. } => (
                "sdam.primary.changed",
                SeverityNumber::Info,
                primaries(old.as_ref(), new.as_ref()),
            ),
            Fact::OutageStarted(outage) => {
                ("sdam.outage.started", SeverityNumber::Warn, primaries(outage.lost.as_ref(), None))
            }
            Fact::FailoverEnded(failover) | Fact::FailoverExplained(failover) => {
                let is_end = matches!(fact, Fact::FailoverEnded(_));
                let name = if is_end { "sdam.failover.ended" } else { "sdam.failover.explained" };
                let primaries = primaries(failover.outage.lost.as_ref(), failover.new.as_ref());
                (name, SeverityNumber::Info, primaries)
            }
            Fact::TopologyTypeChanged { old, new, .. } => {
                let types = [("sdam.topology.previous_type", old), ("sdam.topology.type", new)];
                let types = types.map(|(name, it)| attribute(name, it.as_str()));
                ("sdam.topology.changed", SeverityNumber::Info, types.to_vec())
            }
            _ => return None,
        };
        Some(self.log(time, name, severity, fact, attributes))
    }

    /// Creates the span of a failover. It begins at the earliest time at which the old primary
    /// could have been lost, and ends when the deployment is writable again.
    fn span(&self, wall: &Origin, failover: &Failover, state: &mut State) -> Span {
        let outage = &failover.outage;
        let split = |name: &str, at, attributes: Vec<KeyValue>| Split {
            time_unix_nano: nanos(wall, at),
            name: name.to_owned(),
            attributes,
            ..Split::default()
        };
        let mut events = vec![split("loss noticed", outage.noticed, vec![])];
        for (at, address) in state.clears.drain(..) {
            if at >= outage.earliest() && outage.lost.as_ref() == Some(&address) {
                events.push(split("pool cleared", at, of_server(&address)));
            }
        }
        if let Some(at) = outage.successor_named {
            events.push(split("successor named", at, vec![]));
        }
        events.push(split("writable again", failover.writable_again, vec![]));
        events.sort_by_key(|event| event.time_unix_nano);
        let mut attributes = primaries(outage.lost.as_ref(), failover.new.as_ref());
        attributes
            .extend(failover.election_id.map(|id| attribute("sdam.election_id", id.to_string())));
        attributes.push(attribute("sdam.failover.cause", outage.loss.to_string()));
        attributes.push(attribute("db.system.name", "mongodb"));
        Span {
            trace_id: [state.ids.next_u64(), state.ids.next_u64()].map(u64::to_be_bytes).concat(),
            span_id: state.ids.next_u64().to_be_bytes().to_vec(),
            name: "failover".to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanos(wall, outage.earliest()),
            end_time_unix_nano: nanos(wall, failover.writable_again),
            attributes: self.labels.iter().cloned().chain(attributes).collect(),
            events,
            ..Span::default()
        }
    }
}

/// Returns the wall-clock time of `at`, in nanoseconds since the Unix epoch.
fn nanos(wall: &Origin, at: Instant) -> u64 {
    messages::nanos(wall.wall(at).unwrap_or_else(SystemTime::now))
}

fn of_server(address: &ServerAddress) -> Vec<KeyValue> {
    let port = address.port().map(|port| KeyValue {
        key: "server.port".to_owned(),
        value: Some(AnyValue { value: Some(Value::IntValue(port.into())) }),
        ..KeyValue::default()
    });
    let host = attribute("server.address", address.host());
    [host].into_iter().chain(port).collect()
}

fn primaries(old: Option<&ServerAddress>, new: Option<&ServerAddress>) -> Vec<KeyValue> {
    let both = [("sdam.primary.previous", old), ("sdam.primary", new)];
    let known = both.into_iter().filter_map(|(name, it)| Some(attribute(name, it?.as_str())));
    known.collect()
}

impl EventSink for Records {
    fn emit(&self, event: &Event) {
        if let EventKind::TopologyDescriptionChanged { new, .. } = &event.kind
            && **new == TopologyDescription::default()
        {
            // The topology becomes empty when the client is closed, which is not an outage of the
            // deployment.
            return;
        }
        let wall = Origin::at(self.clock.now(), SystemTime::now());
        let time = nanos(&wall, event.at);
        let mut state = lock(&self.state);
        match &event.kind {
            EventKind::ServerDescriptionChanged { previous, new } => {
                self.queues.logs.add(self.server(time, previous, new));
            }
            EventKind::PoolCleared { address, clear, .. } if !clear.was_paused => {
                if state.clears.len() == MAX_CLEARS {
                    state.clears.remove(0);
                }
                state.clears.push((event.at, address.clone()));
            }
            _ => {}
        }
        for fact in state.facts.observe(event) {
            let mut log = self.fact(time, &fact);
            if let Fact::FailoverEnded(failover) = &fact {
                let span = self.span(&wall, failover, &mut state);
                if let Some(log) = &mut log {
                    log.trace_id.clone_from(&span.trace_id);
                    log.span_id.clone_from(&span.span_id);
                }
                self.queues.spans.add(Some(span));
            }
            self.queues.logs.add(log);
        }
    }

    fn interest(&self) -> Interest {
        Facts::INTEREST.union(Interest::POOL_STATES)
    }
}

sdam_core::opaque!(Records, |this| labels: this.labels);
