use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicU32},
};

use sdam_core::{
    options::{ConfigError, Options},
    read_preference::{ReadMode, ReadPreference},
    session::SessionPool,
};
use sdam_pool::Pools;
use sdam_select::criteria::Criteria;
use sdam_transport::{pool::Authenticator, runtime::Runtime};

use super::{
    Client, Inner, Settings,
    concerns::{Concerns, ignored},
};
use crate::topology::TopologyBuilder;

/// The default of `maxAdaptiveRetries` (Client Backpressure: `MAX_RETRIES`).
const MAX_ADAPTIVE_RETRIES: u32 = 2;

/// Builds a [`Client`] from the builder of its topology.
#[must_use = "no server is monitored until the client is started"]
pub struct ClientBuilder {
    topology: TopologyBuilder,
    authenticator: Option<Arc<dyn Authenticator>>,
}

impl ClientBuilder {
    /// Creates a builder of a client with this topology.
    pub fn new(topology: TopologyBuilder) -> Self {
        Self { topology, authenticator: None }
    }

    /// Changes the builder of the topology: options, sinks, client metadata.
    pub fn topology(mut self, change: impl FnOnce(TopologyBuilder) -> TopologyBuilder) -> Self {
        self.topology = change(self.topology);
        self
    }

    /// Sets the authenticator of the pools' connections, in place of the connection string's
    /// credential.
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticator>) -> Self {
        self.authenticator = Some(authenticator);
        self
    }

    /// Starts monitoring and the pools on `runtime`. Performs no I/O itself and does not wait.
    ///
    /// # Errors
    ///
    /// If the options contradict each other; if the authentication mechanism is not supported and
    /// no [authenticator](Self::authenticator) is set; or if `w` is 0, because a client waits for
    /// the reply to every write. Options of compression are ignored, with a warning.
    pub fn start(self, runtime: Runtime) -> Result<Client, ConfigError> {
        let options = self.topology.configured();
        options.validate()?;
        let authenticator = match self.authenticator {
            Some(authenticator) => Some(authenticator),
            None => sdam_auth::authenticator(options)?,
        };
        let pools = match authenticator {
            Some(authenticator) => Pools::authenticated(options, authenticator)?,
            None => Pools::new(options)?,
        };
        let settings = Settings::of(options)?;
        let warnings = ignored(&options.driver);
        let topology = self.topology.options(|options| {
            for warning in warnings {
                options.warn(warning);
            }
        });
        Ok(Client(Arc::new(Inner {
            topology: topology.pools(pools).start(runtime)?,
            settings,
            sessions: Mutex::new(SessionPool::new()),
            operations: AtomicI64::new(1),
            requests: AtomicU32::new(1),
        })))
    }
}

impl Settings {
    fn of(options: &Options) -> Result<Self, ConfigError> {
        let driver = &options.driver;
        let reads = |preference: &ReadPreference| {
            Criteria::read(preference.clone()).map_err(|error| {
                let (value, reason) = (preference.to_string(), error.to_string());
                ConfigError::new("readPreference", value, reason, "choose another one")
            })
        };
        Ok(Self {
            read: reads(&options.read_preference)?,
            generic: Criteria::primary(),
            // Driver Sessions: on the primary, or on any secondary if there is none.
            end_sessions: reads(&ReadPreference::new(ReadMode::PrimaryPreferred))?,
            retry_reads: driver.retry_reads().unwrap_or(true),
            retry_writes: driver.retry_writes().unwrap_or(true),
            max_adaptive_retries: driver.max_adaptive_retries().unwrap_or(MAX_ADAPTIVE_RETRIES),
            concerns: Concerns::of(driver)?,
            // Zero, no limit, also replaces the other limits.
            timeout: driver.value("timeoutMS").map(|_| driver.timeout().unwrap_or_default()),
            socket_timeout: driver.socket_timeout(),
        })
    }
}

sdam_core::opaque!(ClientBuilder, |this| topology: this.topology);
