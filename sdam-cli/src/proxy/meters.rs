//! The metrics that the proxy shows on its page `/metrics`.

use std::sync::Arc;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram, with_local_recorder,
};
use sdam_core::names;

use super::relay::End;
use crate::page::{Page, Registry};

names! {
    /// The reason why a client was refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Refusal {
        /// Too many connections are open.
        Full = "full",
        /// Too many connections of the same client are open.
        PerClient = "per_client",
        /// The client sent nothing.
        Silent = "silent",
        /// No member was available in time.
        NoMember = "no_member",
        /// The task of the connection failed because of a bug in this program.
        Bug = "bug",
    }
}

/// The reason why a client was refused, and a description in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) Refusal, pub(super) String);

/// The metrics of the proxy.
pub(super) struct Meters {
    registry: Registry,
    pub(super) handles: Handles,
}

/// Handles to the metrics of frequent events, so that each metric is looked up only once.
pub(super) struct Handles {
    accepted: Counter,
    open: Gauge,
    waiting: Gauge,
    pub(super) to_member: Counter,
    pub(super) to_client: Counter,
    pub(super) first_byte: Histogram,
    pub(super) only_hello: Counter,
}

sdam_core::opaque!(Meters);

impl Meters {
    pub(super) fn new() -> Arc<Self> {
        let registry = Registry::new(&[]);
        let handles = with_local_recorder(&registry, || {
            describe_counter!("sdam_proxy_connections_total", "Accepted connections of clients.");
            describe_gauge!("sdam_proxy_connections", "Open connections of clients.");
            describe_gauge!("sdam_proxy_waiting", "Connections that wait for a member.");
            describe_counter!("sdam_proxy_refused_total", "Refused clients, by reason.");
            describe_counter!("sdam_proxy_ended_total", "Ended relays, by the side that ended it.");
            describe_counter!(
                "sdam_proxy_only_hello_total",
                "Relays of clients that learned the members' names, sent only hello, and left."
            );
            describe_counter!("sdam_proxy_bytes_total", "Relayed bytes, by direction.");
            describe_histogram!(
                "sdam_proxy_first_byte_seconds",
                "Times from a request to the first byte of its reply."
            );
            for refusal in Refusal::ALL {
                counter!("sdam_proxy_refused_total", "reason" => refusal.as_str()).absolute(0);
            }
            for end in End::NAMES {
                counter!("sdam_proxy_ended_total", "by" => end).absolute(0);
            }
            let bytes = |to: &'static str| counter!("sdam_proxy_bytes_total", "to" => to);
            Handles {
                accepted: counter!("sdam_proxy_connections_total"),
                open: gauge!("sdam_proxy_connections"),
                waiting: gauge!("sdam_proxy_waiting"),
                to_member: bytes("member"),
                to_client: bytes("client"),
                first_byte: histogram!("sdam_proxy_first_byte_seconds"),
                only_hello: counter!("sdam_proxy_only_hello_total"),
            }
        });
        Arc::new(Self { registry, handles })
    }

    /// Counts an accepted connection, and counts it as open until the result is dropped.
    pub(super) fn accept(&self) -> Level {
        self.handles.accepted.increment(1);
        Level::new(&self.handles.open)
    }

    /// Counts a connection as waiting until the result is dropped.
    pub(super) fn wait(&self) -> Level {
        Level::new(&self.handles.waiting)
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        with_local_recorder(&self.registry, || {
            counter!("sdam_proxy_refused_total", "reason" => refusal.as_str()).increment(1);
        });
    }

    pub(super) fn ended(&self, end: &End) {
        with_local_recorder(&self.registry, || {
            counter!("sdam_proxy_ended_total", "by" => end.name()).increment(1);
        });
    }

    pub(super) fn page(&self) -> Page {
        self.registry.page()
    }
}

/// Keeps a gauge incremented by 1 for as long as this value exists.
pub(super) struct Level(Gauge);

sdam_core::opaque!(Level);

impl Level {
    fn new(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
