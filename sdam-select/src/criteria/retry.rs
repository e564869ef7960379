//! The criteria for an operation's next attempt.

use sdam_core::{
    address::ServerAddress,
    error::{Error, SYSTEM_OVERLOADED_ERROR},
    topology::TopologyType,
};

use super::Criteria;

/// The selected server of an attempt: `SelectedServer` of `sdam`, or equivalent data in a program
/// that does not use `sdam`.
pub trait Attempted {
    /// Returns the server's address.
    fn address(&self) -> &ServerAddress;

    /// Returns the topology type at the time of the selection.
    fn topology_type(&self) -> TopologyType;

    /// Returns the client's `enableOverloadRetargeting`, which is off by default.
    #[doc(alias = "enableOverloadRetargeting")]
    fn retargets_overload(&self) -> bool;
}

impl Criteria {
    /// Returns the criteria for the next attempt, after an attempt on `server` failed with `error`.
    ///
    /// In a sharded cluster, the next attempt avoids that server after any error. On other
    /// topologies, it does so only if the error has the label `SystemOverloadedError` and
    /// `enableOverloadRetargeting` is on (Server Selection: "deprioritized servers").
    #[must_use]
    pub fn after(self, server: &impl Attempted, error: &Error) -> Self {
        let overloaded = server.retargets_overload() && error.has_label(SYSTEM_OVERLOADED_ERROR);
        if server.topology_type() != TopologyType::Sharded && !overloaded {
            return self;
        }
        let mut addresses = self.deprioritized().to_vec();
        addresses.push(server.address().clone());
        self.with_deprioritized(addresses)
    }
}
