use std::sync::Arc;

use sdam_core::{
    options::{ConfigError, Options},
    pool::PoolOptions,
};
use sdam_transport::pool::{Authenticator, PoolContext, PoolFactory};

use crate::pool::Pool;

/// Creates a [`Pool`] for each server of a topology, with the options of this topology.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    options: Option<PoolOptions>,
}

impl Pools {
    /// Creates the factory. A topology with a [credential](Options::credential) and without an
    /// [authenticator](PoolContext::authenticator) does not start.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the [pool options](Options::pool) of the topology.
    #[must_use]
    pub fn with_options(mut self, options: PoolOptions) -> Self {
        self.options = Some(options);
        self
    }
}

impl PoolFactory for Pools {
    type Pool = Pool;

    fn create(&self, mut context: PoolContext) -> Pool {
        if let Some(options) = &self.options {
            Arc::make_mut(&mut context.options).pool.clone_from(options);
        }
        Pool::new(context)
    }

    fn check(
        &self,
        options: &Options,
        authenticator: Option<&dyn Authenticator>,
    ) -> Result<(), ConfigError> {
        if let (Some(credential), None) = (&options.credential, authenticator) {
            let user = credential.user.as_deref().unwrap_or_default();
            let reason = "connections are to authenticate, and there is no authenticator";
            let remedy = "call `authenticate` or `authenticator` of the topology's builder";
            return Err(ConfigError::new("user name", user, reason, remedy));
        }
        self.options.as_ref().map_or(Ok(()), PoolOptions::validate)
    }
}
