use std::sync::Arc;

use sdam_core::{
    options::{ConfigError, Options},
    pool::PoolOptions,
};
use sdam_transport::pool::{Authenticator, NewPool, PoolFactory};

use crate::{inner::Settings, pool::Pool};

/// Creates a [`Pool`] for each server of a topology.
#[derive(Clone, Debug)]
pub struct Pools(Settings);

impl Pools {
    /// Creates the factory for a topology with these options.
    ///
    /// # Errors
    ///
    /// If the options of pools contradict each other, see [`PoolOptions::of`].
    pub fn new(options: &Options) -> Result<Self, ConfigError> {
        Ok(Self(Settings {
            options: PoolOptions::of(&options.driver)?,
            connect_timeout: options.connect_timeout(),
            load_balanced: options.load_balanced,
            authenticator: None,
        }))
    }

    /// Replaces the options of the connection string by these.
    ///
    /// # Errors
    ///
    /// If they contradict each other, see [`PoolOptions::validate`].
    pub fn with_options(mut self, options: PoolOptions) -> Result<Self, ConfigError> {
        options.validate()?;
        self.0.options = options;
        Ok(self)
    }

    /// Sets what authenticates the connections.
    #[must_use]
    pub fn with_authenticator(
        mut self,
        authenticator: impl Into<Option<Arc<dyn Authenticator>>>,
    ) -> Self {
        self.0.authenticator = authenticator.into();
        self
    }
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, new: NewPool) -> Pool {
        Pool::new(new, &self.0)
    }
}
