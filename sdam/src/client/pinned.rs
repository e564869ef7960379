use sdam_core::error::Error;
use sdam_pool::{Pool, PooledConnection};
use sdam_select::criteria::Criteria;
use sdam_transport::pool::CommandReply;

use super::{
    Client, Command,
    attempt::{Operation, Writes, check_out, is_answered},
    error,
    session::Lease,
};
use crate::select::selected::SelectedServer;

/// A connection that several commands share, such as those of a cursor. Dropping this value checks
/// the connection in.
///
/// Behind a load balancer, the commands of a cursor have to use one connection (Load Balancers:
/// "Connection Pinning"). On other topologies they have to use one server. All commands have the
/// same session, as those of a cursor must (Driver Sessions: "Cursors").
#[derive(Debug)]
pub struct PinnedConnection {
    client: Client,
    connection: PooledConnection,
    /// The criteria of commands that have none.
    criteria: Criteria,
    /// `None` before the first command that needs a session.
    lease: Option<Lease>,
    /// The selected server. While this field holds it, one operation is counted as in progress on
    /// that server.
    server: SelectedServer<Pool>,
}

impl PinnedConnection {
    pub(super) async fn check_out(client: &Client, criteria: Criteria) -> Result<Self, Error> {
        let none = Command::new("", &[]);
        let limit = client.limit(&none);
        let check_out_by = client.check_out_by(limit);
        let server = client.select(&criteria, limit).await.map_err(error::unselected)?;
        let connection = check_out(server.pool(), check_out_by).await;
        let connection = connection.map_err(|error| error.with_address(server.address()))?;
        Ok(Self { client: client.clone(), connection, criteria, lease: None, server })
    }

    /// Returns the selected server.
    pub fn server(&self) -> &SelectedServer<Pool> {
        &self.server
    }

    /// Returns the pooled connection.
    pub fn connection(&mut self) -> &mut PooledConnection {
        &mut self.connection
    }

    /// Runs a command once, like [`Client::run`] without retries. A command without criteria of its
    /// own has those of this connection; they affect only the read preference that is sent.
    ///
    /// # Errors
    ///
    /// As [`Client::run`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Whether the command took effect is then unknown, and later
    /// commands fail.
    pub async fn run(&mut self, command: &Command<'_>) -> Result<CommandReply, Error> {
        self.run_with(command, Writes::Checked).await
    }

    /// Runs a command once, like [`Client::run_raw`] without retries.
    ///
    /// # Errors
    ///
    /// As [`Client::run_raw`].
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn run_raw(&mut self, command: &Command<'_>) -> Result<CommandReply, Error> {
        self.run_with(command, Writes::Raw).await
    }

    async fn run_with(
        &mut self,
        command: &Command<'_>,
        writes: Writes,
    ) -> Result<CommandReply, Error> {
        let criteria = command.criteria(&self.criteria, &self.criteria);
        let settings = (self.client.limit(command), writes);
        let operation = Operation::new(&self.client, command, criteria, settings)?;
        let server = &self.server;
        let of_server = |error: Error| error.with_address(server.address());
        let budget = operation.budget(server).map_err(of_server)?;
        let mut lease = match operation.fields.takes_session() {
            true if self.lease.is_none() => {
                self.lease = Lease::acquire(&self.client, server, &self.connection);
                self.lease.as_mut()
            }
            true => self.lease.as_mut(),
            false => None,
        };
        let session = lease.as_mut().and_then(|lease| lease.send());
        let outcome = operation.send(server, &mut self.connection, budget, session).await;
        if let Some(lease) = lease {
            lease.answered(is_answered(&outcome));
        }
        let reply = outcome.map_err(of_server)?;
        operation.checked(server, &reply).map_or(Ok(reply), Err)
    }
}
