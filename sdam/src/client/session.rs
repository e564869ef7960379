//! Sessions of operations.

use std::time::Duration;

use sdam_core::{
    document::DocumentWriter,
    server::ServerType,
    session::{ServerSession, SessionId, Transaction},
};
use sdam_pool::{Pool, PooledConnection};

use super::Client;
use crate::select::selected::SelectedServer;

/// A server session that an operation uses, which returns to the client's pool when this value is
/// dropped.
pub(super) struct Lease {
    client: Client,
    /// `None` only while this value is dropped.
    session: Option<ServerSession>,
    timeout: Option<Duration>,
    /// Set for a retryable write.
    transaction: Option<Transaction>,
    /// True if a command was sent and not answered.
    in_flight: bool,
}

/// The fields to send with a command (Driver Sessions: "Sending the session ID to the server on all
/// commands").
#[derive(Clone, Copy)]
pub(super) enum Sent {
    Session(SessionId),
    Transaction(Transaction),
}

impl Sent {
    pub(super) fn append_to(self, command: &mut DocumentWriter) {
        match self {
            Self::Session(session) => session.append_to(command),
            Self::Transaction(transaction) => transaction.append_to(command),
        }
    }
}

impl Lease {
    /// Takes a session from the client's pool, if the server of `connection` supports sessions.
    pub(super) fn acquire(
        client: &Client,
        server: &SelectedServer<Pool>,
        connection: &PooledConnection,
    ) -> Option<Self> {
        let engine = client.topology().engine();
        let balanced = server.server_type() == ServerType::LoadBalancer;
        let minutes = connection.hello().logical_session_timeout_minutes;
        let timeout = match minutes {
            // Load Balancers: "Session Expiration".
            _ if balanced => None,
            Some(minutes) => {
                Some(Duration::from_secs(60 * u64::try_from(minutes).unwrap_or_default()))
            }
            None => return None,
        };
        let random = || engine.common.backend.unique_bytes();
        let session = client.sessions().acquire(engine.now(), timeout, random);
        let (client, session) = (client.clone(), Some(session));
        Some(Self { client, session, timeout, transaction: None, in_flight: false })
    }

    /// Assigns a transaction number to the operation, which all of its attempts use.
    pub(super) fn begin_transaction(&mut self) {
        if self.transaction.is_none() {
            self.transaction = self.session.as_mut().map(ServerSession::next_transaction);
        }
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Records that a command of the session is being sent.
    pub(super) fn send(&mut self) -> Option<Sent> {
        self.in_flight = true;
        let now = self.client.topology().engine().now();
        let session = self.session.as_mut()?;
        session.used(now);
        Some(self.transaction.map_or(Sent::Session(session.id()), Sent::Transaction))
    }

    /// Records that the command has ended. The session becomes dirty if there was no reply.
    pub(super) fn answered(&mut self, is_answered: bool) {
        self.in_flight = false;
        if let Some(session) = self.session.as_mut().filter(|_| !is_answered) {
            session.mark_dirty();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.in_flight {
            self.answered(false);
        }
        if let Some(session) = self.session.take() {
            let now = self.client.topology().engine().now();
            self.client.sessions().release(session, now, self.timeout);
        }
    }
}

sdam_core::opaque!(Lease, |this| session: this.session, transaction: this.transaction);
