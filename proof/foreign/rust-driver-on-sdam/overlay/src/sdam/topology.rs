//! The topology of a client: the framework's topology behind the driver's interface.

mod handshake_phase;
mod updater;
mod watcher;

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
};

use ::sdam::{Runtime, SelectionError, TopologyBuilder};
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[cfg(test)]
pub(crate) use self::updater::UpdateMessage;
pub(crate) use self::{
    handshake_phase::HandshakePhase,
    updater::{BroadcastMessage, TopologyUpdater},
    watcher::{TopologyState, TopologyWatcher},
};
use super::{
    SelectedServer, convert,
    description::topology::server_selection,
    event::Events,
    server::{Pools, Server},
    srv_polling::SrvPollingMonitor,
    transport::DriverTransport,
};
#[cfg(feature = "tracing-unstable")]
use crate::trace::server_selection::ServerSelectionTracingEventEmitter;
use crate::{
    bson::oid::ObjectId,
    client::options::{ClientOptions, ServerAddress},
    cmap::establish::{ConnectionEstablisher, EstablisherOptions, handshake::ClientMetadata},
    error::{Error, ErrorKind, Result},
    operation::OverrideCriteriaFn,
    selection_criteria::SelectionCriteria,
};

/// The topology of a client. Monitoring ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Topology {
    #[cfg(any(feature = "tracing-unstable", test))]
    pub(crate) id: ObjectId,
    pub(crate) metadata: Arc<RwLock<ClientMetadata>>,
    topology: ::sdam::Topology<Arc<Server>>,
    watcher: TopologyWatcher,
    updater: TopologyUpdater,
    shutdown: TopologyShutdown,
}

/// Stops the tasks of pools, and reports when they have ended.
#[derive(Debug, Clone)]
pub(crate) struct TopologyShutdown {
    pub(crate) token: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl TopologyShutdown {
    pub(crate) fn new() -> Self {
        Self { token: CancellationToken::new(), tasks: TaskTracker::new() }
    }
}

/// The options and metadata with which connections are established.
pub(crate) struct TopologySpec {
    pub(crate) options: ClientOptions,
    pub(crate) metadata: Arc<RwLock<ClientMetadata>>,
}

impl TryFrom<ClientOptions> for TopologySpec {
    type Error = Error;

    fn try_from(options: ClientOptions) -> Result<Self> {
        let metadata = Arc::new(RwLock::new(ClientMetadata::try_from(&options)?));
        Ok(Self { options, metadata })
    }
}

impl Topology {
    pub(crate) fn new(options: ClientOptions) -> Result<Self> {
        let id = ObjectId::new();
        let spec = TopologySpec::try_from(options)?;
        let establisher = ConnectionEstablisher::new(EstablisherOptions::from(&spec))?;
        let (options, metadata) = (Arc::new(spec.options), spec.metadata);
        let monitoring = monitoring_enabled(&options);
        let shutdown = TopologyShutdown::new();

        let mut runtime = runtime()?;
        runtime.backend.transport =
            Arc::new(DriverTransport { establisher: establisher.clone(), disabled: !monitoring });
        let clock = Arc::clone(&runtime.backend.clock);
        let document = Arc::clone(&metadata);
        let mut builder = TopologyBuilder::new(convert::options(&options))
            .id(convert::object_id(id))
            .client_document(crate::cmap::is_faas(), move || handshake_document(&document))
            .pools(Pools {
                options: Arc::clone(&options),
                establisher,
                shutdown: shutdown.clone(),
                #[cfg(feature = "tracing-unstable")]
                id,
            });
        let events = Events::new(
            Arc::clone(&options),
            Arc::clone(&clock),
            #[cfg(feature = "tracing-unstable")]
            id,
            monitoring,
        );
        if let Some(events) = events {
            builder = builder.sink(events);
        }
        let topology =
            builder.start(runtime).map_err(|error| Error::invalid_argument(error.to_string()))?;

        let watcher = TopologyWatcher::new(topology.downgrade(), clock, Arc::clone(&options));
        let updater = TopologyUpdater::of_topology(watcher.clone());
        if monitoring && options.original_srv_info.is_some() {
            SrvPollingMonitor::start(
                updater.clone(),
                watcher.clone(),
                (*options).clone(),
                shutdown.clone(),
            );
        }
        Ok(Self {
            #[cfg(any(feature = "tracing-unstable", test))]
            id,
            metadata,
            topology,
            watcher,
            updater,
            shutdown,
        })
    }

    pub(crate) fn updater(&self) -> &TopologyUpdater {
        &self.updater
    }

    pub(crate) fn watcher(&self) -> &TopologyWatcher {
        &self.watcher
    }

    pub(crate) fn latest(&self) -> TopologyState {
        self.watcher.peek_latest()
    }

    pub(crate) async fn shutdown(&self) {
        self.shutdown.token.cancel();
        self.topology.close().await;
        self.shutdown.tasks.close();
        self.shutdown.tasks.wait().await;
    }

    /// Selects a server, and returns it with the criteria that were used.
    pub(crate) async fn select(
        &self,
        criteria: &SelectionCriteria,
        deprioritized: Option<&HashSet<ServerAddress>>,
        #[allow(unused)] operation: &str,
        override_criteria: OverrideCriteriaFn,
    ) -> Result<(SelectedServer, SelectionCriteria)> {
        #[cfg(feature = "tracing-unstable")]
        let traces = ServerSelectionTracingEventEmitter::new(
            self.id,
            criteria,
            operation,
            std::time::Instant::now(),
            self.topology.options().server_selection_timeout,
            self.watcher.options().tracing_max_document_length_bytes,
        );
        #[cfg(feature = "tracing-unstable")]
        traces.emit_started_event(self.latest().description.clone());
        loop {
            let version = self.topology.snapshot().version();
            let overriding = override_criteria(criteria, &self.watcher.view());
            let effective = overriding.as_ref().unwrap_or(criteria);
            let wanted =
                server_selection::criteria(effective, deprioritized, self.watcher.clock())?;
            let selected = match self.topology.try_select(&wanted) {
                Ok(Some(selected)) => Ok(selected),
                Ok(None) => {
                    #[cfg(feature = "tracing-unstable")]
                    traces.emit_waiting_event(&self.latest().description);
                    self.topology.select(&wanted).await
                }
                Err(error) => Err(error),
            };
            let selected = selected
                .map(SelectedServer::Counted)
                .map_err(|error| self.selection_error(error, criteria));
            #[cfg(feature = "tracing-unstable")]
            match &selected {
                Ok(server) => traces.emit_succeeded_event(&self.latest().description, server),
                Err(error) => traces.emit_failed_event(&self.latest().description, error),
            }
            let selected = selected?;
            // The criteria may depend on information that arrived during the wait.
            if self.topology.snapshot().version() == version
                || override_criteria(criteria, &self.watcher.view()) == overriding
            {
                return Ok((selected, effective.clone()));
            }
        }
    }

    fn selection_error(&self, error: SelectionError, criteria: &SelectionCriteria) -> Error {
        match error {
            SelectionError::Timeout(_) => ErrorKind::ServerSelection {
                message: self.watcher.view().timeout_message(criteria),
            }
            .into(),
            SelectionError::InvalidCriteria(error) => Error::invalid_argument(error.to_string()),
            error => ErrorKind::ServerSelection { message: error.to_string() }.into(),
        }
    }
}

/// Returns the runtime of the calling task, or of the blocking interface.
fn runtime() -> Result<Runtime> {
    let handle = Handle::try_current();
    #[cfg(feature = "sync")]
    let handle = handle.or_else(|_| {
        Ok::<_, tokio::runtime::TryCurrentError>(crate::sync::TOKIO_RUNTIME.handle().clone())
    });
    let handle = handle.map_err(|error| Error::internal(error.to_string()))?;
    ::sdam::runtime::tokio_from_handle(handle).map_err(|error| Error::internal(error.to_string()))
}

fn handshake_document(metadata: &RwLock<ClientMetadata>) -> Vec<u8> {
    let metadata = metadata.read().unwrap_or_else(PoisonError::into_inner);
    metadata.shortened().into_bytes()
}

fn monitoring_enabled(options: &ClientOptions) -> bool {
    #[cfg(test)]
    if let Some(test) = &options.test_options {
        if test.disable_monitoring_threads {
            return false;
        }
    }
    options.load_balanced != Some(true)
}
