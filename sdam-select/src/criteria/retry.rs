//! The criteria for an operation's next attempt.

use sdam_core::{
    address::ServerAddress,
    error::{Error, SYSTEM_OVERLOADED_ERROR},
    topology::TopologyType,
};

use super::Criteria;

impl Criteria {
    /// Returns the criteria for the next attempt, after an attempt on `server` failed with `error`.
    /// With `sdam`, this is `SelectedServer::criteria_after`.
    ///
    /// In a sharded cluster, the next attempt avoids that server after any error. On other
    /// topologies, it does so only if the error has the label `SystemOverloadedError` and
    /// `retargets_overload`, the client's `enableOverloadRetargeting`, is true (Server Selection:
    /// "deprioritized servers").
    #[must_use]
    pub fn after(
        self,
        (server, topology_type): (&ServerAddress, TopologyType),
        retargets_overload: bool,
        error: &Error,
    ) -> Self {
        let overloaded = retargets_overload && error.has_label(SYSTEM_OVERLOADED_ERROR);
        if topology_type != TopologyType::Sharded && !overloaded {
            return self;
        }
        let mut addresses = self.deprioritized().to_vec();
        addresses.push(server.clone());
        self.with_deprioritized(addresses)
    }
}
