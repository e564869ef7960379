//! Reports from operations, pools and SRV look-ups to the topology.

#[cfg(test)]
use std::time::Duration;
use std::{collections::HashSet, sync::Weak};

use ::sdam::{ErrorOutcome, Generation, PoolContext, Reporter};
#[cfg(test)]
use tokio::sync::mpsc;

use super::{HandshakePhase, TopologyWatcher};
use crate::{
    ClusterTime,
    client::options::ServerAddress,
    error::Error,
    sdam::{Server, convert, error},
};
#[cfg(test)]
use crate::{runtime::AcknowledgedMessage, sdam::ServerDescription};

/// A request to every pool.
#[derive(Debug, Clone)]
pub(crate) enum BroadcastMessage {
    FillPool,
    #[cfg(test)]
    SyncWorkers,
}

/// Receives reports about servers.
#[derive(Debug, Clone)]
pub(crate) enum TopologyUpdater {
    /// The updater for operations and look-ups of the client.
    Topology(TopologyWatcher),
    /// The updater for one server's pool, whose generations count from `first`.
    Pool { reporter: Reporter, first: Generation, server: Weak<Server> },
    /// A channel for tests.
    #[cfg(test)]
    Channel(mpsc::UnboundedSender<AcknowledgedMessage<UpdateMessage, bool>>),
}

impl TopologyUpdater {
    pub(super) fn of_topology(watcher: TopologyWatcher) -> Self {
        Self::Topology(watcher)
    }

    pub(crate) fn of_pool(context: &PoolContext, server: &Weak<Server>) -> Self {
        Self::Pool {
            reporter: context.reporter.clone(),
            first: context.generation,
            server: Weak::clone(server),
        }
    }

    /// Reports an error on a connection. Returns whether it changed the topology.
    ///
    /// All effects have been requested when it returns: the pool's worker handles a clear before
    /// any later check-out.
    pub(crate) async fn handle_application_error(
        &self,
        #[allow(unused)] address: ServerAddress,
        error: Error,
        phase: HandshakePhase,
    ) -> bool {
        match self {
            Self::Pool { reporter, first, server } => {
                let generation = match phase.generation() {
                    Some(generation) => {
                        Some(Generation::from_u64(first.as_u64() + u64::from(generation)))
                    }
                    // The driver's pool itself counts the generations of services.
                    None if server.upgrade().is_none_or(|it| phase.is_stale(&it.pool)) => None,
                    None => reporter.generation(phase.service_id().map(convert::object_id)),
                };
                let report = generation.and_then(|it| error::report(&error, &phase, it));
                report.is_some_and(|report| is_update(reporter.handle_error(&report)))
            }
            #[cfg(not(test))]
            Self::Topology(_) => false,
            #[cfg(test)]
            Self::Topology(watcher) => {
                let servers = watcher.servers();
                let Some(server) = servers.get(&address) else {
                    return false;
                };
                let updater = server.updater();
                Box::pin(updater.handle_application_error(address, error, phase)).await;
                self.sync_workers().await;
                true
            }
            #[cfg(test)]
            Self::Channel(sender) => {
                let update = UpdateMessage::ApplicationError { address, error, phase };
                let (message, receiver) = AcknowledgedMessage::package(update);
                let sent = sender.send(message).is_ok();
                sent && receiver.wait_for_acknowledgment().await.unwrap_or(false)
            }
        }
    }

    pub(crate) async fn advance_cluster_time(&self, to: ClusterTime) {
        if let Self::Topology(watcher) = self {
            watcher.advance_cluster_time(to);
        }
    }

    /// Replaces the servers with the hosts of an SRV look-up.
    pub(crate) async fn sync_hosts(&self, hosts: HashSet<ServerAddress>) {
        if let Self::Topology(watcher) = self {
            watcher.sync_hosts(hosts);
        }
    }

    pub(crate) async fn fill_pool(&self) {
        self.broadcast(BroadcastMessage::FillPool).await;
    }

    async fn broadcast(&self, message: BroadcastMessage) {
        if let Self::Topology(watcher) = self {
            let servers = watcher.peek_latest().servers();
            let answers = servers.values().map(|server| server.pool.broadcast(message.clone()));
            futures_util::future::join_all(answers).await;
        }
    }
}

fn is_update(outcome: ErrorOutcome) -> bool {
    matches!(
        outcome,
        ErrorOutcome::MarkedUnknown | ErrorOutcome::Cleared | ErrorOutcome::ServiceCleared
    )
}

/// Messages that the driver's own tests send and receive.
#[cfg(test)]
#[derive(Debug)]
pub(crate) enum UpdateMessage {
    ApplicationError {
        #[allow(unused)]
        address: ServerAddress,
        error: Error,
        #[allow(unused)]
        phase: HandshakePhase,
    },
}

#[cfg(test)]
pub(crate) struct TopologyUpdateReceiver(
    mpsc::UnboundedReceiver<AcknowledgedMessage<UpdateMessage, bool>>,
);

#[cfg(test)]
impl TopologyUpdateReceiver {
    pub(crate) async fn recv(&mut self) -> Option<AcknowledgedMessage<UpdateMessage, bool>> {
        self.0.recv().await
    }
}

#[cfg(test)]
impl TopologyUpdater {
    pub(crate) fn channel() -> (Self, TopologyUpdateReceiver) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self::Channel(sender), TopologyUpdateReceiver(receiver))
    }

    pub(crate) async fn sync_workers(&self) {
        self.broadcast(BroadcastMessage::SyncWorkers).await;
    }

    /// Simulates the reply to a check.
    pub(crate) async fn update(&self, server: ServerDescription) -> bool {
        let Self::Topology(watcher) = self else {
            return false;
        };
        let (Ok(Some(reply)), Some(rtt)) = (&server.reply, server.average_round_trip_time) else {
            return false;
        };
        let mut hello = crate::bson_compat::serialize_to_raw_document_buf(&reply.command_response)
            .expect("a reply is a document");
        hello.append(crate::bson_compat::cstr!("ok"), 1);
        watcher.handle_check(&server.address, Ok(hello.as_bytes()), rtt);
        self.sync_workers().await;
        true
    }

    /// Simulates the failure of a check.
    pub(crate) async fn handle_monitor_error(&self, address: ServerAddress, error: Error) -> bool {
        let Self::Topology(watcher) = self else {
            return false;
        };
        watcher.handle_check(&address, Err(error), Duration::ZERO);
        self.sync_workers().await;
        true
    }
}
