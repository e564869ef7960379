use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicU32},
};

use arc_swap::ArcSwapOption;
use sdam_core::{options::ConfigError, session::SessionPool};
use sdam_pool::Pools;
use sdam_select::criteria::Criteria;
use sdam_transport::{pool::Authenticator, runtime::Runtime};

use super::{Client, Inner, concerns};
use crate::topology::TopologyBuilder;

/// Builds a [`Client`] from the builder of its topology.
#[must_use = "no server is monitored until the client is started"]
pub struct ClientBuilder {
    topology: TopologyBuilder,
    authenticator: Option<Arc<dyn Authenticator>>,
}

impl ClientBuilder {
    /// Creates a client builder from a topology builder.
    pub fn new(topology: TopologyBuilder) -> Self {
        Self { topology, authenticator: None }
    }

    /// Changes the topology builder, for example its options, sinks or client metadata.
    pub fn topology(mut self, change: impl FnOnce(TopologyBuilder) -> TopologyBuilder) -> Self {
        self.topology = change(self.topology);
        self
    }

    /// Sets the authenticator for the pools' connections, in place of the connection string's
    /// credential.
    pub fn authenticator(mut self, own: Arc<dyn Authenticator>) -> Self {
        self.authenticator = Some(own);
        self
    }

    /// Starts monitoring and the pools on `runtime`. Performs no I/O itself and does not wait.
    ///
    /// # Errors
    ///
    /// If the options contradict each other; if the authentication mechanism is not supported and
    /// no [authenticator](Self::authenticator) is set; or if `w` is 0, because a client waits for
    /// the reply to every write. Compression options are ignored, with a warning.
    pub fn start(self, runtime: Runtime) -> Result<Client, ConfigError> {
        let options = &self.topology.options;
        options.validate()?;
        let authenticator = match self.authenticator {
            Some(authenticator) => Some(authenticator),
            None => sdam_auth::authenticator(options)?,
        };
        let pools = match authenticator {
            Some(authenticator) => Pools::authenticated(authenticator),
            None => Pools::new(),
        };
        concerns::check(options)?;
        let preference = &options.read_preference;
        let read = Criteria::read(preference.clone()).map_err(|error| {
            let (value, reason) = (preference.to_string(), error.to_string());
            ConfigError::new("readPreference", value, reason, "choose another one")
        })?;
        let warnings = concerns::ignored(options);
        let topology = self.topology.options(|options| {
            for warning in warnings {
                options.warn(warning);
            }
        });
        Ok(Client(Arc::new(Inner {
            topology: topology.pools(pools).start(runtime)?,
            read,
            sessions: Mutex::new(SessionPool::new()),
            cluster_time: ArcSwapOption::empty(),
            operations: AtomicI64::new(1),
            requests: AtomicU32::new(1),
        })))
    }
}

sdam_core::opaque!(ClientBuilder, |this| topology: this.topology);
