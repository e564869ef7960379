//! Encodes OTLP requests, including the description of the sender.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    },
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    logs::v1::{LogRecord, ResourceLogs, ScopeLogs},
    metrics::v1::{Metric, ResourceMetrics, ScopeMetrics},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prost::Message;

pub(super) fn attribute(name: &str, value: impl Into<String>) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(text(value)), ..KeyValue::default() }
}

pub(super) fn text(value: impl Into<String>) -> AnyValue {
    let value = Some(Value::StringValue(value.into()));
    AnyValue { value }
}

/// Converts a time to nanoseconds since the Unix epoch.
pub(super) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}

/// The sender of all messages: this program, described as a resource and a scope of OTLP.
pub(super) struct Sender {
    resource: Option<Resource>,
    scope: Option<InstrumentationScope>,
}

impl Sender {
    /// Creates the sender; `attributes` are those of its resource.
    pub(super) fn new(attributes: &BTreeMap<String, String>) -> Self {
        let attributes = attributes.iter().map(|(name, value)| attribute(name, value));
        Self {
            resource: Some(Resource { attributes: attributes.collect(), ..Resource::default() }),
            scope: Some(InstrumentationScope {
                name: env!("CARGO_PKG_NAME").to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..InstrumentationScope::default()
            }),
        }
    }

    pub(super) fn metrics(&self, metrics: Vec<Metric>) -> Vec<u8> {
        let scope_metrics =
            vec![ScopeMetrics { scope: self.scope.clone(), metrics, ..ScopeMetrics::default() }];
        let resource_metrics = vec![ResourceMetrics {
            resource: self.resource.clone(),
            scope_metrics,
            ..ResourceMetrics::default()
        }];
        ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
    }

    pub(super) fn logs(&self, log_records: Vec<LogRecord>) -> Vec<u8> {
        let scope_logs =
            vec![ScopeLogs { scope: self.scope.clone(), log_records, ..ScopeLogs::default() }];
        let resource_logs = vec![ResourceLogs {
            resource: self.resource.clone(),
            scope_logs,
            ..ResourceLogs::default()
        }];
        ExportLogsServiceRequest { resource_logs }.encode_to_vec()
    }

    pub(super) fn spans(&self, spans: Vec<Span>) -> Vec<u8> {
        let scope_spans =
            vec![ScopeSpans { scope: self.scope.clone(), spans, ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans {
            resource: self.resource.clone(),
            scope_spans,
            ..ResourceSpans::default()
        }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }
}
