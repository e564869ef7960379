//! The builder of topologies.

use std::{fmt, sync::Arc};

use sdam_core::{
    event::{EventKind, EventName},
    ids::ObjectId,
    machine::Input,
    monitor::MonitorConfig,
    options::{ConfigError, Options, Warning},
    pool::{NoPools, PoolFactory},
    rng::Rng,
    time::Instant,
};
use sdam_events::{
    dispatch::Dispatcher,
    history::History,
    queue::EventQueue,
    sink::{EventSink, Fanout, Interest},
};
use sdam_select::{candidate::Selector, settings::Settings};
use sdam_transport::{
    handshake::{ClientMetadata, Environment},
    runtime::{Io, Runtime},
    spawn::Task,
};

use crate::{
    cell::{Parts, TopologyCell},
    error::StartError,
    introduction::Introduction,
    scan::ScanTopology,
    topology::Topology,
};

/// Builds a topology from options, pools, sinks, a selector and client metadata.
#[must_use = "nothing is watched until the topology is started"]
pub struct TopologyBuilder {
    options: Options,
    pools: Arc<dyn PoolFactory>,
    sinks: Vec<Arc<dyn EventSink>>,
    selector: Option<Arc<dyn Selector>>,
    metadata: Option<ClientMetadata>,
    history: Option<Arc<History>>,
}

impl Topology {
    /// Creates a builder from a connection string.
    ///
    /// # Errors
    ///
    /// If the connection string is malformed or contradicts itself; the error names the option.
    pub fn builder(uri: &str) -> Result<TopologyBuilder, ConfigError> {
        Ok(TopologyBuilder::new(Options::parse(uri)?))
    }
}

impl TopologyBuilder {
    /// Creates a builder from options.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            pools: Arc::new(NoPools),
            sinks: Vec::new(),
            selector: None,
            metadata: None,
            history: None,
        }
    }

    /// Sets the factory of each server's connection pool; [`NoPools`] by default.
    pub fn pools(mut self, pools: impl PoolFactory) -> Self {
        self.pools = Arc::new(pools);
        self
    }

    /// Adds an event sink; may be called several times.
    pub fn sink(mut self, sink: impl EventSink) -> Self {
        self.sinks.push(Arc::new(sink));
        self
    }

    /// Sets the custom server selector, which takes part in every selection (Server Selection:
    /// "Application-Provided Server Selector").
    pub fn selector(mut self, selector: Arc<dyn Selector>) -> Self {
        self.selector = Some(selector);
        self
    }

    /// Sets the client metadata of every connection's handshake, including the platform. The
    /// default names this crate and reads the process environment.
    pub fn metadata(mut self, metadata: ClientMetadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Keeps a history of the last `transitions` and their causes. Errors of selections that time
    /// out include it ([`SelectionTimeout::history`](crate::error::SelectionTimeout::history)).
    pub fn history(mut self, transitions: usize) -> Self {
        self.history = Some(Arc::new(History::new(transitions)));
        self
    }

    /// Changes the options.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Starts monitoring on `runtime`. Performs no I/O itself and does not wait, so it never fails
    /// because servers are down (SDAM: "Client construction").
    ///
    /// # Errors
    ///
    /// If the options contradict each other.
    pub fn start(self, runtime: Runtime) -> Result<Topology, StartError> {
        let Prepared {
            options,
            topology,
            rng,
            config,
            introduction,
            pools,
            events,
            sink,
            history,
            selector,
            warnings,
        } = self.prepare(&runtime.io, Options::multi_threaded_warnings)?;
        let mut settings = Settings::new(&options);
        settings.selector = selector;
        let cell = Arc::new(TopologyCell::new(Parts {
            options,
            topology,
            rng,
            settings,
            history,
            config: Arc::new(config),
            introduction,
            pools,
            events,
            warnings,
            runtime,
        }));
        if let Some(sink) = sink {
            dispatch(&cell, sink);
        }
        // Dropping it closes the topology if a pool panics.
        let topology = Topology::new(Arc::clone(&cell));
        cell.apply(Input::Open);
        publish_warnings(&cell.events, cell.now(), &cell.warnings);
        Ok(topology)
    }

    /// Builds a single-threaded topology without background tasks. Servers are checked inline with
    /// selections, using only `io`. Performs no I/O itself.
    ///
    /// # Errors
    ///
    /// If the options contradict each other.
    pub fn scan(self, io: Io) -> Result<ScanTopology, StartError> {
        let prepared = self.prepare(&io, Options::single_threaded_warnings)?;
        Ok(ScanTopology::new(prepared, io))
    }

    /// Prepares what both kinds of topology start with. `warnings` are those of the kind.
    fn prepare(
        mut self,
        io: &Io,
        warnings: fn(&Options) -> Vec<Warning>,
    ) -> Result<Prepared, StartError> {
        let options = self.options;
        options.validate()?;
        refuse_guards(&options)?;
        let mut metadata = match self.metadata {
            Some(metadata) => metadata,
            None => ClientMetadata::new(
                env!("CARGO_PKG_NAME"),
                env!("CARGO_PKG_VERSION"),
                &Environment::from_process(),
            )?,
        };
        if let Some(name) = &options.app_name {
            metadata = metadata.with_application(name)?;
        }
        let is_faas = metadata.is_faas();
        let introduction = Introduction::new(metadata, options.load_balanced);
        let config = MonitorConfig::new(&options, introduction.handshake(), is_faas);
        let mut rng = Rng::new(io.next_seed());
        let topology = ObjectId::random(&mut rng);
        if let Some(history) = &self.history {
            self.sinks.push(history.clone());
        }
        let sink: Option<Arc<dyn EventSink>> = match self.sinks.len() {
            0 => None,
            1 => self.sinks.into_iter().next(),
            _ => Some(Arc::new(Fanout::from_iter(self.sinks))),
        };
        let interest = sink.as_ref().map_or(Interest::NONE, EventSink::interest);
        Ok(Prepared {
            warnings: warnings(&options),
            options,
            topology,
            rng,
            config,
            introduction,
            pools: self.pools,
            events: Arc::new(EventQueue::new(topology, interest)),
            sink,
            history: self.history,
            selector: self.selector,
        })
    }
}

/// Refuses options that ask for TLS or a proxy, which this engine does not support. Connecting in
/// plain text, or past the proxy, would violate the user's security settings.
fn refuse_guards(options: &Options) -> Result<(), ConfigError> {
    let Some((name, value)) = options.driver.guards().next() else {
        return Ok(());
    };
    let (reason, remedy) = if name.starts_with("proxy") {
        (
            "the engine does not connect through a proxy",
            "leave it out and start the topology on a runtime whose transport connects through the \
             proxy itself",
        )
    } else {
        (
            "the engine does not negotiate TLS",
            "leave it out and start the topology on a runtime whose transport negotiates TLS itself",
        )
    };
    Err(ConfigError::new(name, value.to_string(), reason, remedy))
}

/// The validated parts that a topology starts with.
pub(crate) struct Prepared {
    pub(crate) options: Options,
    pub(crate) topology: ObjectId,
    pub(crate) rng: Rng,
    pub(crate) config: MonitorConfig,
    pub(crate) introduction: Introduction,
    pub(crate) pools: Arc<dyn PoolFactory>,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) sink: Option<Arc<dyn EventSink>>,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) selector: Option<Arc<dyn Selector>>,
    pub(crate) warnings: Vec<Warning>,
}

/// Publishes the configuration warnings of a topology that has just opened.
pub(crate) fn publish_warnings(events: &EventQueue, now: Instant, warnings: &[Warning]) {
    for warning in warnings {
        events.push_with(now, EventName::ConfigWarning, || {
            EventKind::ConfigWarning(Arc::new(warning.clone()))
        });
    }
}

/// Starts the task that delivers events.
fn dispatch(cell: &Arc<TopologyCell>, sink: Arc<dyn EventSink>) {
    cell.dispatchers.begin();
    let dispatcher = Dispatcher::new(Arc::clone(&cell.events), sink);
    let guard = Ended(Arc::clone(cell));
    let task = async move {
        let _guard = guard;
        dispatcher.await;
    };
    cell.runtime.spawner.spawn(Task::new("sdam-events", task));
}

/// A guard that counts the end of the dispatcher, however it ends.
struct Ended(Arc<TopologyCell>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.dispatchers.end();
    }
}

impl fmt::Debug for TopologyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopologyBuilder")
            .field("options", &self.options)
            .field("pools", &self.pools)
            .field("sinks", &self.sinks)
            .finish_non_exhaustive()
    }
}
