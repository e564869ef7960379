use std::sync::Arc;

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{CommandInfo, EventKind},
    time::Instant,
};
use sdam_events::sink::Interest;
use sdam_pool::{Pool, PooledConnection};

use super::attempt::Operation;
use crate::{select::selected::SelectedServer, topology::shared::Shared};

/// Publishes the events of one command, if a sink wants them. If this value is dropped before the
/// last event, it publishes a failed event, so that every started event is followed by a succeeded
/// or failed event (Command Logging and Monitoring: "Guarantees").
pub(super) struct CommandEvents<'c> {
    shared: &'c Shared,
    started: Instant,
    /// `None` after the command's last event, or if no sink wants events.
    info: Option<Arc<CommandInfo>>,
}

impl<'c> CommandEvents<'c> {
    pub(super) fn begin(
        operation: &Operation<'c>,
        server: &SelectedServer<Pool>,
        connection: &PooledConnection,
        document: &[u8],
    ) -> Self {
        let shared = &**operation.client.topology().shared();
        let started = shared.now();
        let events = &shared.events;
        let is_wanted = events.wants_any(Interest::COMMANDS) && events.admits_operation(started);
        let info = is_wanted.then(|| {
            let database = operation.command.database;
            let request = operation.client.next_request();
            let server = (server.id(), server.address().clone());
            let info = CommandInfo::new(document, database, request, server, connection.id())
                .with_operation_id(Some(operation.id))
                .with_service_id(connection.service_id());
            let info = Arc::new(info);
            events.push(started, info.started(document));
            info
        });
        Self { shared, started, info }
    }

    pub(super) fn succeeded(mut self, reply: &[u8]) {
        self.end(|info, duration| info.succeeded(duration, reply));
    }

    pub(super) fn failed(mut self, error: Error) {
        self.end(|info, duration| info.failed(duration, error));
    }

    fn end(&mut self, event: impl FnOnce(&Arc<CommandInfo>, std::time::Duration) -> EventKind) {
        if let Some(info) = self.info.take() {
            let now = self.shared.now();
            let event = event(&info, now.since(self.started));
            self.shared.events.push(now, event);
        }
    }
}

impl Drop for CommandEvents<'_> {
    fn drop(&mut self) {
        let (kind, stage) = (ErrorKind::Cancelled, Stage::Operation);
        self.end(|info, duration| {
            let error = Error::new(kind, stage, "the caller has dropped the operation");
            info.failed(duration, error)
        });
    }
}
