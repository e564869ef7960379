use sdam_core::error::Error;
use sdam_pool::{Pool, PooledConnection};
use sdam_select::criteria::Criteria;
use sdam_transport::pool::CommandReply;

use super::{
    Client, Command,
    attempt::{Operation, check_out},
    error,
};
use crate::select::selected::SelectedServer;

/// A connection that several commands share, such as those of a cursor. Dropping this value checks
/// the connection in.
///
/// Behind a load balancer, the commands of a cursor have to use one connection (Load Balancers:
/// "Connection Pinning"). On other topologies they have to use one server.
#[derive(Debug)]
pub struct PinnedConnection {
    client: Client,
    connection: PooledConnection,
    /// The selected server. While this field holds it, one operation is counted as in progress on
    /// that server.
    server: SelectedServer<Pool>,
}

impl PinnedConnection {
    pub(super) async fn check_out(client: &Client, criteria: &Criteria) -> Result<Self, Error> {
        let none = Command::new("", &[]);
        let limit = client.limit(&none);
        let check_out_by = client.check_out_by(limit);
        let server = client.select(criteria, limit).await.map_err(error::unselected)?;
        let connection = check_out(server.pool(), check_out_by).await;
        let connection = connection.map_err(|error| error.with_address(server.address()))?;
        Ok(Self { client: client.clone(), connection, server })
    }

    /// Returns the selected server.
    pub fn server(&self) -> &SelectedServer<Pool> {
        &self.server
    }

    /// Returns the pooled connection.
    pub fn connection(&mut self) -> &mut PooledConnection {
        &mut self.connection
    }

    /// Runs a command once, like [`Client::run`] without retries. The command's criteria affect
    /// only the read preference that is sent.
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
        let result = self.run_once(command).await;
        result.map_err(|error| error.with_address(self.server.address()))
    }

    async fn run_once(&mut self, command: &Command<'_>) -> Result<CommandReply, Error> {
        let operation = Operation::new(&self.client, command, self.client.limit(command));
        let budget = operation.budget(&self.server)?;
        operation.send(&self.server, &mut self.connection, budget, None).await
    }
}
