//! Servers on their way through selection, and the application's own say in it.

use alloc::sync::Arc;
use core::ops::Deref;

use sdam_core::{server::ServerDescription, topology::TopologyDescription};
use smallvec::SmallVec;

/// One server of a topology, with its place in it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'t> {
    /// Where the server is in [`TopologyDescription::servers`], so that whoever keeps something per
    /// server in the same order needs no look-up.
    pub index: usize,
    /// The server.
    pub server: &'t Arc<ServerDescription>,
}

impl Deref for Candidate<'_> {
    type Target = ServerDescription;

    fn deref(&self) -> &ServerDescription {
        self.server
    }
}

/// Some servers of one topology, in the order of their addresses. Up to eight take no allocation.
#[derive(Clone, Debug, Default)]
pub struct Candidates<'t>(SmallVec<[Candidate<'t>; 8]>);

impl<'t> Candidates<'t> {
    /// Drops every server for which `keep` says no.
    ///
    /// There is no way to add one, so a selector can only narrow the choice.
    pub fn retain(&mut self, mut keep: impl FnMut(Candidate<'t>) -> bool) {
        self.0.retain(|candidate| keep(*candidate));
    }

    /// The servers of `topology` for which `keep` says yes.
    pub(crate) fn of(
        topology: &'t TopologyDescription,
        keep: impl Fn(&ServerDescription) -> bool,
    ) -> Self {
        let servers = topology.servers().iter().enumerate();
        let all = servers.map(|(index, server)| Candidate { index, server });
        Self(all.filter(|candidate| keep(candidate.server)).collect())
    }
}

impl<'t> Deref for Candidates<'t> {
    type Target = [Candidate<'t>];

    fn deref(&self) -> &[Candidate<'t>] {
        &self.0
    }
}

/// The application's own say in selection (Server Selection: "Application-Provided Server
/// Selector").
///
/// Closures of that shape are selectors.
///
/// # Contract
///
/// Called by whoever selects, on its thread, with no lock held, once per attempt that found at
/// least one suitable server, before the latency window is applied. It should be quick and must not
/// select from the same topology. With a selector and more than eight suitable servers, selection
/// allocates.
pub trait Selector: Send + Sync {
    /// Drops from `suitable` what the application does not want. If nothing is left, selection
    /// waits for the topology to change.
    fn select(&self, suitable: &mut Candidates<'_>);
}

impl<F: Fn(&mut Candidates<'_>) + Send + Sync> Selector for F {
    fn select(&self, suitable: &mut Candidates<'_>) {
        self(suitable);
    }
}
