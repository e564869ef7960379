//! Erases the types of pools, so that the engine is compiled only once for all of them.

use std::{any::Any, fmt::Debug};

use sdam_core::options::{ConfigError, Options};
use sdam_transport::pool::{Authenticator, PoolContext, PoolFactory, PoolHandle};

/// A [`PoolFactory`] for pools of any type.
pub(crate) trait CreatePool: Send + Sync + Debug {
    fn create_pool(&self, context: PoolContext) -> Box<dyn PoolHandle>;
    fn check(
        &self,
        options: &Options,
        authenticator: Option<&dyn Authenticator>,
    ) -> Result<(), ConfigError>;
}

impl<F: PoolFactory> CreatePool for F {
    fn create_pool(&self, context: PoolContext) -> Box<dyn PoolHandle> {
        Box::new(self.create(context))
    }

    fn check(
        &self,
        options: &Options,
        authenticator: Option<&dyn Authenticator>,
    ) -> Result<(), ConfigError> {
        PoolFactory::check(self, options, authenticator)
    }
}

/// Returns the pool of a selected server, created by a factory with `Pool = P`.
///
/// # Panics
///
/// If there is no pool, or the pool has another type. Neither can happen: a server without a pool
/// is never selected, and the type of a topology includes the type of its pools.
pub(crate) fn typed<P: PoolHandle>(pool: Option<&dyn PoolHandle>) -> &P {
    match pool.and_then(|pool| (pool as &dyn Any).downcast_ref()) {
        Some(pool) => pool,
        #[expect(clippy::unreachable, reason = "the topology's type names the pool")]
        None => unreachable!("the selected server has no such pool"),
    }
}
