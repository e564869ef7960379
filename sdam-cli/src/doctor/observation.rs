//! Observations of a deployment, as plain data.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sdam::select::Diagnosis;
use sdam_core::{
    address::ServerAddress,
    error::Error,
    hello::Hello,
    options::{ConfigError, Options, Warning},
    topology::TopologyDescription,
};
use sdam_select::explain::Explanation;

use super::Collection;

/// Everything that was observed about a deployment.
#[derive(Clone, Debug, Default)]
pub(super) struct Observation {
    /// The reason why the connection string cannot be used.
    pub(super) config: Option<ConfigError>,
    pub(super) warnings: Vec<Warning>,
    /// The look-ups of the DNS records for a `mongodb+srv` string.
    pub(super) srv: Option<Srv>,
    /// The client's options; `None` if the seeds are not known.
    pub(super) options: Option<Options>,
    /// The seeds, followed by the members that servers named.
    pub(super) hosts: Vec<Host>,
    pub(super) deployment: Option<Discovery>,
    pub(super) login: Option<Login>,
    /// The write test, if it was requested.
    pub(super) canary: Option<Canary>,
}

/// The results of looking up the SRV record and the TXT record concurrently.
#[derive(Clone, Debug)]
pub(super) struct Srv {
    /// The name in the connection string.
    pub(super) host: String,
    /// The name of the SRV record.
    pub(super) name: String,
    pub(super) hosts: Result<Vec<ServerAddress>, Error>,
    pub(super) texts: Result<Vec<Box<str>>, Error>,
    /// The reason why the records cannot be used.
    pub(super) refused: Option<ConfigError>,
    pub(super) took: Duration,
}

/// The observations of one server.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) address: ServerAddress,
    /// The address that was dialled, if it differs from `address`.
    pub(super) place: Option<ServerAddress>,
    /// The server that named this one as a member; `None` for a seed.
    pub(super) named_by: Option<ServerAddress>,
    /// The look-up of the host name, if it succeeded; `None` also for an IP address, for a socket,
    /// and if a proxy is used.
    pub(super) look_up: Option<LookUp>,
    /// The attempts to connect; empty if a proxy connects.
    pub(super) dials: Vec<Dial>,
    /// The error that ended the check.
    pub(super) error: Option<Error>,
    /// True if TLS was not requested but the server uses it, or the other way round.
    pub(super) is_reverse: bool,
    pub(super) session: Option<TlsSession>,
    pub(super) greeting: Option<Greeting>,
    /// The time needed to connect, including the TLS handshake.
    pub(super) connected: Option<Duration>,
}

impl Host {
    pub(super) fn new(address: ServerAddress) -> Self {
        Self {
            address,
            place: None,
            named_by: None,
            look_up: None,
            dials: Vec::new(),
            error: None,
            is_reverse: false,
            session: None,
            greeting: None,
            connected: None,
        }
    }
}

/// The result of a successful look-up.
#[derive(Clone, Debug)]
pub(super) struct LookUp {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) took: Duration,
}

/// An attempt to connect to one address.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    pub(super) to: SocketAddr,
    pub(super) outcome: Reached,
    pub(super) took: Duration,
}

/// The outcome of an attempt to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Yes,
    Refused,
    Silent,
    /// The process, or the system, has too many open files.
    NoDescriptor,
    Failed(String),
}

/// The results of a TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsSession {
    pub(super) protocol: String,
    pub(super) cipher: String,
    /// The expiry of the server's certificate, in seconds since 1970.
    pub(super) not_after: Option<i64>,
    pub(super) names: Vec<String>,
    /// The time of the handshake, in seconds since 1970.
    pub(super) now: i64,
}

/// The results of the hello exchanges with a server.
#[derive(Clone, Debug)]
pub(super) struct Greeting {
    pub(super) hello: Hello,
    /// The server's clock minus this machine's, in milliseconds.
    pub(super) clock: Option<i64>,
    pub(super) round_trips: Vec<Duration>,
}

impl Greeting {
    /// Returns the average round-trip time. The first reply is left out, because it takes longer.
    pub(super) fn average(&self) -> Option<Duration> {
        let later = self.round_trips.get(1..).filter(|later| !later.is_empty());
        let counted = later.unwrap_or(&self.round_trips);
        let count = u32::try_from(counted.len()).ok().filter(|count| *count > 0);
        Some(counted.iter().sum::<Duration>() / count?)
    }
}

/// The deployment as a client sees it.
#[derive(Clone, Debug)]
pub(super) struct Discovery {
    pub(super) topology: Arc<TopologyDescription>,
    pub(super) write: Explanation,
    pub(super) read: Explanation,
    pub(super) diagnoses: Vec<Diagnosis>,
}

/// The outcome of an authentication.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) server: ServerAddress,
    pub(super) error: Option<Error>,
    pub(super) took: Duration,
}

/// The outcome of the write test.
#[derive(Clone, Debug)]
pub(super) struct Canary {
    pub(super) collection: String,
    /// The failed step and its error.
    pub(super) outcome: Result<(), (&'static str, Error)>,
    pub(super) took: Duration,
}

impl Canary {
    /// Returns the outcome of a write test that was not started because the login failed.
    pub(super) fn refused(collection: &Collection, error: Error) -> Self {
        let (collection, outcome) = (collection.to_string(), Err((Self::INSERT, error)));
        Self { collection, outcome, took: Duration::ZERO }
    }

    /// The name of the test's first step.
    pub(super) const INSERT: &str = "insert";
    /// The name of the test's second step.
    pub(super) const DELETE: &str = "delete";
}
