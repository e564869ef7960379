use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicU32},
};

use arc_swap::ArcSwapOption;
use sdam_core::{options::ConfigError, session::SessionPool};
use sdam_pool::Pools;
use sdam_select::criteria::Criteria;
use sdam_transport::runtime::Runtime;

use super::{Client, Inner, concerns};
use crate::topology::TopologyBuilder;

impl TopologyBuilder {
    /// Starts monitoring, pools and a client on `runtime`. Performs no I/O itself and does not wait.
    ///
    /// Connections are authenticated as the options say, or with an
    /// [authenticator](Self::authenticator) of your own.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start) and [`authenticate`](Self::authenticate); and if `w` is 0, because
    /// a client waits for the reply to every write. Compression options are ignored, with a warning.
    pub fn client(mut self, runtime: Runtime) -> Result<Client, ConfigError> {
        self.options.validate()?;
        self = self.authenticate()?;
        let options = &mut self.options;
        concerns::check(options)?;
        let preference = &options.read_preference;
        let read = Criteria::read(preference.clone()).map_err(|error| {
            let (value, reason) = (preference.to_string(), error.to_string());
            ConfigError::new("readPreference", value, reason, "choose another one")
        })?;
        for warning in concerns::ignored(options) {
            options.warn(warning);
        }
        Ok(Client(Arc::new(Inner {
            topology: self.pools(Pools::new()).start(runtime)?,
            read,
            sessions: Mutex::new(SessionPool::new()),
            cluster_time: ArcSwapOption::empty(),
            operations: AtomicI64::new(1),
            requests: AtomicU32::new(1),
        })))
    }
}
