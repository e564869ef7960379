use std::sync::Arc;

use sdam_core::{
    options::{ConfigError, Options},
    pool::PoolOptions,
};
use sdam_transport::pool::{Authenticator, PoolContext, PoolFactory};

use crate::{inner::Settings, pool::Pool};

/// Creates a [`Pool`] for each server of a topology.
#[derive(Clone, Debug)]
pub struct Pools(Settings);

impl Pools {
    /// Creates the factory for a topology whose options have no credential.
    ///
    /// # Errors
    ///
    /// If the pool options contradict each other (see [`PoolOptions::of`]), or if there is a
    /// [credential](Options::credential), which needs an [authenticator](Self::authenticated).
    pub fn new(options: &Options) -> Result<Self, ConfigError> {
        if let Some(credential) = &options.credential {
            let user = credential.user.as_deref().unwrap_or_default();
            let reason = "connections are to authenticate, and there is no authenticator";
            let remedy = "pass that of `sdam_auth::authenticator` to `Pools::authenticated`";
            return Err(ConfigError::new("user name", user, reason, remedy));
        }
        Self::with(options, None)
    }

    /// Creates the factory for a topology with these options. `authenticator` authenticates the
    /// connections.
    ///
    /// # Errors
    ///
    /// If the pool options contradict each other; see [`PoolOptions::of`].
    pub fn authenticated(
        options: &Options,
        authenticator: Arc<dyn Authenticator>,
    ) -> Result<Self, ConfigError> {
        Self::with(options, Some(authenticator))
    }

    /// Replaces the pool options of the connection string.
    ///
    /// # Errors
    ///
    /// If the options contradict each other; see [`PoolOptions::validate`].
    pub fn with_options(mut self, options: PoolOptions) -> Result<Self, ConfigError> {
        options.validate()?;
        self.0.options = options;
        Ok(self)
    }

    fn with(
        options: &Options,
        authenticator: Option<Arc<dyn Authenticator>>,
    ) -> Result<Self, ConfigError> {
        Ok(Self(Settings {
            options: PoolOptions::of(&options.driver)?,
            connect_timeout: options.connect_timeout,
            spread: options.spread,
            load_balanced: options.load_balanced,
            authenticator,
        }))
    }
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, context: PoolContext) -> Pool {
        Pool::new(context, &self.0)
    }
}
