//! The builder of topologies, and the layers that it adds to the transport.

use std::{
    any::TypeId,
    marker::PhantomData,
    sync::{Arc, Mutex},
};

use sdam_core::{
    deployment::Input,
    event::{EventKind, EventName},
    ids::ObjectId,
    monitor::MonitorConfig,
    options::{ConfigError, Options, Warning},
    rng::Rng,
};
use sdam_events::{
    dispatch::Dispatcher,
    history::History,
    queue::EventQueue,
    sink::{EventSink, Fanout, Interest},
};
use sdam_select::{candidate::Selector, settings::Settings};
use sdam_transport::{
    connect::Transport,
    handshake::{ClientMetadata, Environment},
    layers::{Layers, Translate},
    pool::{Authenticator, NoPools, PoolFactory, PoolHandle},
    runtime::{Backend, Runtime},
    spawn::Task,
};

use super::{Topology, tasks::SrvTask};
use crate::{
    common::{DriverDocument, Metadata, MetadataHandshake},
    engine::{Background, CreatePool, Engine, TaskSet},
};

/// Builds a topology from options, pools, sinks, a selector and client metadata.
#[must_use = "no server is monitored until the topology is started"]
pub struct TopologyBuilder<P = NoPools> {
    pub(crate) options: Options,
    pools: Arc<dyn CreatePool>,
    pool: PhantomData<fn() -> P>,
    sinks: Vec<Arc<dyn EventSink>>,
    selector: Option<Arc<dyn Selector>>,
    metadata: Option<Metadata>,
    history: Option<Arc<History>>,
    id: Option<ObjectId>,
    translate: Option<Arc<dyn Translate>>,
    authentication: Option<Authentication>,
}

/// The way in which connections are authenticated.
enum Authentication {
    /// With the authenticator of the program.
    Own(Arc<dyn Authenticator>),
    /// As the options say when the topology starts.
    #[cfg(feature = "pool")]
    AsOptions,
}

impl Authentication {
    /// Returns the authenticator, with the entropy of `backend` for its nonces.
    #[cfg_attr(
        not(feature = "pool"),
        expect(unused_variables, clippy::unnecessary_wraps, reason = "no variant needs them")
    )]
    fn authenticator(
        self,
        options: &Options,
        backend: &Backend,
    ) -> Result<Option<Arc<dyn Authenticator>>, ConfigError> {
        match self {
            Self::Own(authenticator) => Ok(Some(authenticator)),
            #[cfg(feature = "pool")]
            Self::AsOptions => Ok(sdam_auth::Account::of(options)?.map(|account| {
                Arc::new(account.with_entropy(Arc::clone(&backend.entropy)))
                    as Arc<dyn Authenticator>
            })),
        }
    }
}

impl TopologyBuilder {
    /// Creates a builder from options.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            pools: Arc::new(NoPools),
            pool: PhantomData,
            sinks: Vec::new(),
            selector: None,
            metadata: None,
            history: None,
            id: None,
            translate: None,
            authentication: None,
        }
    }
}

impl<P: PoolHandle> TopologyBuilder<P> {
    /// Sets the factory for each server's connection pool; [`NoPools`] by default. Selections then
    /// return servers with pools that this factory has created.
    pub fn pools<F: PoolFactory>(self, pools: F) -> TopologyBuilder<F::Pool> {
        TopologyBuilder {
            options: self.options,
            pools: Arc::new(pools),
            pool: PhantomData,
            sinks: self.sinks,
            selector: self.selector,
            metadata: self.metadata,
            history: self.history,
            id: self.id,
            translate: self.translate,
            authentication: self.authentication,
        }
    }

    /// Adds an event sink; may be called several times.
    pub fn sink(mut self, sink: impl EventSink) -> Self {
        self.sinks.push(Arc::new(sink));
        self
    }

    /// Sets the custom server selector, which takes part in every selection (Server Selection:
    /// "Application-Provided Server Selector").
    pub fn selector(mut self, selector: impl Selector + 'static) -> Self {
        self.selector = Some(Arc::new(selector));
        self
    }

    /// Sets the client metadata for every connection's handshake, including the platform. By
    /// default, the metadata names this crate, and describes the environment of this process.
    pub fn metadata(mut self, metadata: ClientMetadata) -> Self {
        self.metadata = Some(Metadata::Own(Mutex::new(metadata)));
        self
    }

    /// Sets a function that encodes the `client` document (BSON) for every connection's handshake,
    /// in place of [`metadata`](Self::metadata). Meant for drivers. `is_faas` is true if the
    /// program runs on a FaaS platform, where `serverMonitoringMode=auto` means polling.
    ///
    /// `document` is called whenever a connection is opened, including those of monitors, so the
    /// driver may change its metadata at run time. It should return quickly, and must not call the
    /// topology. The document has to contain the application's name, because `appName` of the
    /// options is not added. If the document is longer than [512 bytes](ClientMetadata::MAX_LENGTH)
    /// or not BSON, [`start`](Self::start) fails. If a later document is invalid, new connections
    /// omit it. [`Topology::append_metadata`] always returns an error.
    pub fn client_document(
        mut self,
        is_faas: bool,
        document: impl Fn() -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.metadata =
            Some(Metadata::Driver(DriverDocument { is_faas, encode: Arc::new(document) }));
        self
    }

    /// Keeps a history of the last `transitions` transitions and their causes. Errors from
    /// selections that time out include it
    /// ([`SelectionTimeout::history`](crate::select::SelectionTimeout::history)).
    pub fn history(mut self, transitions: usize) -> Self {
        self.history = Some(Arc::new(History::new(transitions)));
        self
    }

    /// Sets the topology's id, which all events carry, for drivers that also publish it in
    /// events of their own. It is random by default.
    pub fn id(mut self, id: ObjectId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the translation of members' addresses, for deployments whose members have names that
    /// this host cannot resolve or reach: an [`AddressTable`](crate::options::AddressTable),
    /// [`HostTranslation`](crate::options::HostTranslation), or your own. Only the address to
    /// connect to is translated; members keep their names, and TLS verifies these names.
    pub fn translate(mut self, translate: impl Translate) -> Self {
        self.translate = Some(Arc::new(translate));
        self
    }

    /// Authenticates connections as the options say: as the user of the connection string, or with
    /// [`Options::credential`]. Does nothing without a user, or with an
    /// [authenticator](Self::authenticator) of your own.
    ///
    /// # Errors
    ///
    /// If this library does not support the mechanism, or if the credential lacks a part that the
    /// mechanism requires or has a part that the mechanism does not allow. Starting the topology
    /// checks this again, because the options may change until then.
    #[cfg(feature = "pool")]
    pub fn authenticate(mut self) -> Result<Self, ConfigError> {
        if self.authentication.is_none() {
            sdam_auth::Account::of(&self.options)?;
            self.authentication = Some(Authentication::AsOptions);
        }
        Ok(self)
    }

    /// Sets an authenticator of your own, in place of `authenticate`. Every pool
    /// [gets](sdam_transport::pool::PoolContext::authenticator) it, and connections of
    /// single-threaded mode use it before they run operations. Monitors do not authenticate.
    pub fn authenticator(mut self, own: Arc<dyn Authenticator>) -> Self {
        self.authentication = Some(Authentication::Own(own));
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
    /// If the options contradict each other or require TLS or a proxy that `runtime` does not
    /// support, or if the client metadata is invalid.
    pub fn start(self, runtime: Runtime) -> Result<Topology<P>, ConfigError> {
        let Runtime { mut backend, spawner, .. } = runtime;
        let mut prepared = self.prepare(&mut backend, Options::multi_threaded_warnings)?;
        let sink = prepared.sink.take();
        let settings = prepared.settings(Settings::new);
        let background = Background::Tasks(TaskSet::default());
        let engine = Engine::new(prepared, settings, (backend, Some(spawner)), background);
        if let Some(sink) = sink {
            let dispatcher = Dispatcher::new(Arc::clone(&engine.events), sink);
            engine.spawn(engine.counted(|tasks| &tasks.dispatchers, "sdam-events", dispatcher));
        }
        // If a pool panics below, dropping this handle closes the topology.
        let topology = Topology::new(Arc::clone(&engine));
        engine.handle(Input::Open);
        engine.publish_warnings();
        if let Some(task) = SrvTask::new(&engine) {
            engine.spawn(Task::new("sdam-srv", task.run()));
        }
        Ok(topology)
    }

    /// Validates the options, prepares the parts that topologies with and without background tasks
    /// have in common, and adds the needed layers to the transport of `backend`. `warnings` returns
    /// the warnings that apply to this kind of topology.
    pub(crate) fn prepare(
        mut self,
        backend: &mut Backend,
        warnings: fn(&Options) -> Vec<Warning>,
    ) -> Result<Prepared, ConfigError> {
        let sink = self.take_sink();
        let options = self.options;
        options.validate()?;
        let authenticator = match self.authentication {
            Some(authentication) => authentication.authenticator(&options, backend)?,
            None => None,
        };
        self.pools.check(&options, authenticator.as_deref())?;
        require_certificate(backend, &options)?;
        backend.transport = layered(backend, &options, self.translate.as_ref())?;
        let metadata = if let Some(metadata) = self.metadata {
            metadata
        } else {
            let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
            let own = ClientMetadata::new(name, version, &Environment::from_process())?;
            Metadata::Own(Mutex::new(own))
        };
        let metadata = MetadataHandshake::new(metadata, &options)?;
        let config = MonitorConfig::new(&options, metadata.handshake(), metadata.is_faas());
        let rng = Rng::new(backend.next_seed());
        let id = self.id.unwrap_or_else(|| ObjectId::from_bytes(backend.unique_bytes()));
        let interest = sink.as_ref().map_or(Interest::NONE, EventSink::interest);
        let clock = Arc::clone(&backend.clock);
        let events = EventQueue::new(id, interest).with_wall(move || clock.wall());
        let mut warnings = warnings(&options);
        if let (Some(credential), None) = (&options.credential, &authenticator)
            && TypeId::of::<P>() != TypeId::of::<NoPools>()
        {
            let user = credential.user.as_deref().unwrap_or_default();
            let reason = "the topology's builder has no authenticator";
            let consequence = "the pools authenticate their connections themselves, or not at all";
            warnings.push(Warning::new("user name", user, reason, consequence));
        }
        Ok(Prepared {
            warnings,
            options,
            rng,
            config,
            metadata,
            authenticator,
            pools: self.pools,
            events: Arc::new(events),
            sink,
            history: self.history,
            selector: self.selector,
        })
    }

    /// Takes the sinks and the history, and combines them into one sink.
    fn take_sink(&mut self) -> Option<Arc<dyn EventSink>> {
        let mut sinks = std::mem::take(&mut self.sinks);
        if let Some(history) = &self.history {
            sinks.push(history.clone());
        }
        match sinks.len() {
            0 | 1 => sinks.pop(),
            _ => Some(Arc::new(Fanout::from_iter(sinks))),
        }
    }
}

/// The validated parts that a topology starts with.
pub(crate) struct Prepared {
    pub(crate) options: Options,
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
    pub(crate) rng: Rng,
    pub(crate) config: MonitorConfig,
    pub(crate) metadata: MetadataHandshake,
    pub(crate) pools: Arc<dyn CreatePool>,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) sink: Option<Arc<dyn EventSink>>,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) selector: Option<Arc<dyn Selector>>,
    pub(crate) warnings: Vec<Warning>,
}

impl Prepared {
    /// Returns the settings of selections, which `new` creates from the options. Moves the
    /// selector into them.
    pub(crate) fn settings(&mut self, new: fn(&Options) -> Settings) -> Settings {
        let mut settings = new(&self.options);
        settings.selector = self.selector.take();
        settings
    }
}

impl Engine {
    /// Publishes the configuration warnings of a topology that has just opened.
    pub(crate) fn publish_warnings(&self) {
        let now = self.now();
        for warning in &self.common.warnings {
            self.events.push_with(now, EventName::ConfigWarning, || {
                EventKind::ConfigWarning(Arc::new(warning.clone()))
            });
        }
    }
}

sdam_core::opaque!(TopologyBuilder<P>, |this|
    options: this.options,
    pools: this.pools,
    sinks: this.sinks
);

/// Returns the transport that connects as `options` and `translate` require.
///
/// # Errors
///
/// If the runtime has no TLS, or its transport does not support a required layer or has TLS with
/// other options. Connecting in plain text, or without the proxy, would violate the user's security
/// settings.
fn layered(
    backend: &Backend,
    options: &Options,
    translate: Option<&Arc<dyn Translate>>,
) -> Result<Arc<dyn Transport>, ConfigError> {
    let guards = backend.transport.guards();
    let mut transport = Arc::clone(&backend.transport);
    let mut add = |set: &dyn Fn(&mut Layers), refusal| {
        let mut layers = Layers::default();
        set(&mut layers);
        transport = transport.with_layers(layers).ok_or(refusal)?;
        Ok(())
    };
    if translate.is_some() {
        let refusal = refusal("translate", "", TRANSLATES);
        add(&|layers| layers.translate = translate.cloned(), refusal)?;
    }
    if let Some(timeout) = options.tcp_user_timeout {
        let refusal = refusal("tcpUserTimeout", &format!("{timeout:?}"), USER_TIMEOUT);
        add(&|layers| layers.user_timeout = Some(timeout), refusal)?;
    }
    if let Some(proxy) = options.proxy.as_ref().filter(|_| !guards.proxy) {
        let refusal = refusal("proxyHost", &proxy.host, PROXY);
        add(&|layers| layers.proxy = Some(proxy.clone()), refusal)?;
    }
    if let Some(tls) = options.tls.as_ref().filter(|_| guards.tls)
        && let Some((option, value)) = tls.first_set()
    {
        return Err(refusal(option, value, OWN_TLS));
    }
    if let Some(tls) = options.tls.as_ref().filter(|_| !guards.tls) {
        let provider = backend.tls.as_ref().ok_or_else(|| refusal("tls", "true", LIBRARY))?;
        let tls = provider.tls(tls)?;
        add(&|layers| layers.tls = Some(Arc::clone(&tls)), refusal("tls", "true", TLS))?;
    }
    Ok(transport)
}

/// Checks that there is a client certificate if users are authenticated by certificate. Without it,
/// every server would refuse the users.
fn require_certificate(backend: &Backend, options: &Options) -> Result<(), ConfigError> {
    if !is_x509(options) || backend.transport.guards().tls {
        return Ok(());
    }
    let Some(tls) = &options.tls else {
        return Err(refusal("authMechanism", X509, PLAIN_TEXT));
    };
    let provider = backend.tls.as_ref().ok_or_else(|| refusal("tls", "true", LIBRARY))?;
    if provider.has_client_certificate(tls) {
        Ok(())
    } else {
        Err(refusal("tlsCertificateKeyFile", "", CERTIFICATE))
    }
}

/// Returns whether users are authenticated by the client's certificate.
fn is_x509(options: &Options) -> bool {
    let credential = options.credential.as_ref();
    credential.is_some_and(|credential| credential.mechanism.as_deref() == Some(X509))
}

fn refusal(option: &str, value: &str, (reason, remedy): (&str, &str)) -> ConfigError {
    ConfigError::new(option, value, reason, remedy)
}

/// The reason for a refusal, and the remedy.
type Refusal = (&'static str, &'static str);

const X509: &str = "MONGODB-X509";

const CERTIFICATE: Refusal = (
    "MONGODB-X509 takes the user from the client's certificate, and there is none",
    "name the file of the certificate and its key",
);
const PLAIN_TEXT: Refusal = (
    "it takes the user from the client's certificate, and connections are not encrypted",
    "add tls=true and tlsCertificateKeyFile, or use SCRAM-SHA-256",
);
const TRANSLATES: Refusal = (
    "the runtime's transport cannot translate addresses",
    "let the transport translate them itself; around another transport, use `Wrapped`",
);
const USER_TIMEOUT: Refusal = (
    "the runtime's transport has no sockets whose options could be set",
    "leave it out, or set it on the sockets of the transport itself; around another transport, use \
     `Wrapped`",
);
const PROXY: Refusal = (
    "the runtime's transport cannot connect through a proxy",
    "leave it out, or let the transport connect through the proxy itself and say so by \
     `Transport::guards`; around another transport, use `Wrapped`",
);
const LIBRARY: Refusal = (
    "the runtime has no TLS library",
    "enable the feature `tls` of sdam, or set `Backend::tls` to a library of your own; leave it out only if \
     plain text is acceptable",
);
const OWN_TLS: Refusal = (
    "the runtime's transport negotiates TLS with options of its own, so this one would be ignored",
    "leave it out, and set it where the transport is created",
);
const TLS: Refusal = (
    "the runtime's transport has no byte streams that could be encrypted",
    "let the transport negotiate TLS itself and say so by `Transport::guards`; around another \
     transport, use `Wrapped`",
);
