//! Tests TLS between clients and real servers.

#[cfg(feature = "client")]
mod clients;
mod failover;
mod refusals;
mod routes;

use std::{sync::Arc, time::Duration};

use futures::executor::block_on;
use sdam::{Criteria, EventKind, Options, SelectionError, TopologyBuilder, error::Stage};
use sdam_live::{Certificates, Mongod, ServerTls, or_skip};
use sdam_tls::Rustls;

use crate::{
    observer::Observer,
    runtime::{Host, version},
};

fn certificates() -> Arc<Certificates> {
    Arc::new(Certificates::create().unwrap())
}

/// Starts one server. Returns `None` if no server is available.
fn start(tls: &ServerTls) -> Option<Mongod> {
    or_skip(Mongod::start_tls(version(), tls)).unwrap()
}

/// Returns the options of a client that presents its certificate.
fn with_client(certificates: &Certificates) -> String {
    let file = certificates.client();
    let options = certificates.options();
    format!("{options}&tlsCertificateKeyFile={}", file.display())
}

/// Waits for the first check of the only server, which must succeed.
#[track_caller]
fn accept(uri: &str, change: impl FnOnce(TopologyBuilder) -> TopologyBuilder) {
    let host = Host::start().with_tls(Rustls::ring());
    let observer = Observer::build(host, Options::parse(uri).unwrap(), change);
    observer.wait_for("a check to succeed", 0, |kind| {
        if let EventKind::ServerHeartbeatFailed { failure: error, .. } = kind {
            panic!("{uri}: {error}");
        }
        matches!(kind, EventKind::ServerHeartbeatSucceeded { .. }).then_some(())
    });
    observer.finish();
}

/// Waits for the first check of the only server, which must fail at the given stage. Returns the
/// error that a selection then reports.
#[track_caller]
fn refuse(
    uri: &str,
    provider: Rustls,
    stage: Stage,
    change: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
) -> String {
    let host = Host::start().with_tls(provider);
    let observer = Observer::build(host, Options::parse(uri).unwrap(), change);
    let (error, mark) = observer.wait_for("a check to fail", 0, |kind| match kind {
        EventKind::ServerHeartbeatFailed { failure: error, .. } => Some(error.clone()),
        EventKind::ServerHeartbeatSucceeded { .. } => panic!("{uri}: accepted"),
        _ => None,
    });
    assert_eq!(error.stage(), stage, "{uri}: {error}");
    observer.wait_for_topology("the error in the description", mark, |topology| {
        topology.servers()[0].error.is_some()
    });
    let write = Criteria::write();
    let now = observer.topology.select_within(&write, Duration::ZERO);
    let Err(SelectionError::Timeout(timeout)) = block_on(now) else {
        panic!("{uri}: selected");
    };
    observer.finish();
    timeout.to_string()
}
