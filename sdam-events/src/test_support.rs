//! Events and sinks for this crate's tests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::raw::RawDocumentBuf;
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    event::{
        CheckOutFailure, CommandInfo, ConnectionClosedReason, ConnectionId, Event, EventKind,
        Heartbeat, Selection, SelectionFailure,
    },
    ids::{ObjectId, ServerId},
    pool::PoolClear,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};

use crate::sink::{EventSink, Interest};

pub(crate) const TOPOLOGY: ObjectId = ObjectId::from_bytes([7; 12]);

pub(crate) fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}

pub(crate) fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn event(kind: EventKind) -> Event {
    Event::new(1, at(1), TOPOLOGY, kind)
}

pub(crate) fn heartbeat(server: u64) -> Heartbeat {
    Heartbeat::new(
        ServerId::from_u64(server),
        address(&format!("host{server}")),
        ConnectionId { driver: 1, server: None },
        false,
    )
}

pub(crate) fn started(server: u64) -> EventKind {
    EventKind::ServerHeartbeatStarted(heartbeat(server))
}

pub(crate) fn failed(server: u64) -> EventKind {
    EventKind::ServerHeartbeatFailed {
        heartbeat: heartbeat(server),
        duration: Duration::from_millis(3),
        failure: Error::new(ErrorKind::Network, Stage::Connect, "refused"),
    }
}

pub(crate) fn opening(server: u64) -> EventKind {
    EventKind::ServerOpening {
        server: ServerId::from_u64(server),
        address: address(&format!("host{server}")),
    }
}

pub(crate) fn succeeded(server: u64, reply: &bson::Document) -> EventKind {
    let reply = RawDocumentBuf::try_from(reply).unwrap();
    EventKind::ServerHeartbeatSucceeded {
        heartbeat: heartbeat(server),
        duration: Duration::from_micros(1500),
        reply: reply.as_bytes().into(),
    }
}

/// Returns the description of a server that has this type and the host name `host{server}`.
pub(crate) fn description(server: u64, server_type: ServerType) -> ServerDescription {
    let id = ServerId::from_u64(server);
    let mut description = ServerDescription::unknown(id, address(&format!("host{server}")));
    description.server_type = server_type;
    description
}

pub(crate) fn topology_changed(
    previous: &TopologyDescription,
    new: &TopologyDescription,
) -> EventKind {
    EventKind::TopologyDescriptionChanged {
        previous: Arc::new(previous.clone()),
        new: Arc::new(new.clone()),
    }
}

pub(crate) fn selection() -> Arc<Selection> {
    let mut selection = Selection::new("{ mode: primary }");
    (selection.operation, selection.operation_id) = (Some("find".into()), Some(42));
    Arc::new(selection)
}

/// Returns the event for the start of a selection.
pub(crate) fn selects(selection: &Arc<Selection>) -> EventKind {
    let (selection, description) = (Arc::clone(selection), Arc::default());
    EventKind::ServerSelectionStarted { selection, description }
}

pub(crate) fn waits(selection: &Arc<Selection>, remaining: Option<Duration>) -> EventKind {
    let (selection, description) = (Arc::clone(selection), Arc::default());
    EventKind::ServerSelectionWaiting { selection, description, remaining }
}

/// Returns the event for a selection that has chosen `host1`.
pub(crate) fn found(selection: &Arc<Selection>, duration: Duration) -> EventKind {
    let (selection, description) = (Arc::clone(selection), Arc::default());
    let (server, address) = server();
    EventKind::ServerSelectionSucceeded { selection, description, server, address, duration }
}

pub(crate) fn not_found(
    selection: &Arc<Selection>,
    reason: SelectionFailure,
    duration: Duration,
) -> EventKind {
    let (selection, description) = (Arc::clone(selection), Arc::default());
    let failure = "no server".into();
    EventKind::ServerSelectionFailed { selection, description, reason, failure, duration }
}

/// Returns the server that the tests' pool events refer to.
pub(crate) fn server() -> (ServerId, ServerAddress) {
    (ServerId::from_u64(1), address("host1"))
}

pub(crate) fn pool_cleared(clear: PoolClear) -> EventKind {
    let (server, address) = server();
    EventKind::PoolCleared { server, address, clear }
}

pub(crate) fn created() -> EventKind {
    let (server, address) = server();
    EventKind::ConnectionCreated { server, address, connection: connection() }
}

pub(crate) fn ready(duration: Duration) -> EventKind {
    let (server, address) = server();
    EventKind::ConnectionReady { server, address, connection: connection(), duration }
}

pub(crate) fn closed(reason: ConnectionClosedReason, error: Option<Error>) -> EventKind {
    let ((server, address), connection) = (server(), connection());
    EventKind::ConnectionClosed { server, address, connection, reason, error }
}

pub(crate) fn check_out_started() -> EventKind {
    let (server, address) = server();
    EventKind::ConnectionCheckOutStarted { server, address }
}

pub(crate) fn check_out_failed(reason: CheckOutFailure, duration: Duration) -> EventKind {
    let ((server, address), failure) = (server(), "refused".into());
    EventKind::ConnectionCheckOutFailed { server, address, reason, failure, duration }
}

pub(crate) fn checked_out(duration: Duration) -> EventKind {
    let (server, address) = server();
    EventKind::ConnectionCheckedOut { server, address, connection: connection(), duration }
}

pub(crate) fn checked_in() -> EventKind {
    let (server, address) = server();
    EventKind::ConnectionCheckedIn { server, address, connection: connection() }
}

/// Returns the ids of a pooled connection.
pub(crate) fn connection() -> ConnectionId {
    ConnectionId { driver: 3, server: Some(4) }
}

/// Returns a command to `host1`, and its document.
pub(crate) fn command(document: &bson::Document) -> (Arc<CommandInfo>, Vec<u8>) {
    let document = document.to_vec().unwrap();
    let server = (ServerId::from_u64(1), address("host1"));
    let mut info = CommandInfo::new(&document, "db", 7, server, connection());
    info.operation_id = Some(42);
    info.service_id = Some(ObjectId::from_bytes([2; 12]));
    (Arc::new(info), document)
}

/// A sink that keeps all events.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<Event>>,
    interest: Option<Interest>,
}

impl Recorder {
    pub(crate) fn shared() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn interested_in(interest: Interest) -> Arc<Self> {
        Arc::new(Self { interest: Some(interest), ..Self::default() })
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) fn seqs(&self) -> Vec<u64> {
        self.events().iter().map(|event| event.seq).collect()
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.events().iter().map(|event| event.kind.name().as_str()).collect()
    }
}

impl EventSink for Recorder {
    fn emit(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
    }

    fn interest(&self) -> Interest {
        self.interest.unwrap_or(Interest::SDAM)
    }
}
