//! Candidate servers during selection, and application-provided server selectors.

use alloc::sync::Arc;
use core::{fmt, ops::Deref};

use sdam_core::{server::ServerDescription, topology::TopologyDescription};
use smallvec::SmallVec;

/// One server of a topology, with its index.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Candidate<'t> {
    /// The index of the server in [`TopologyDescription::servers`]. It can also be used to look up
    /// data that is stored per server in the same order.
    pub index: usize,
    /// The server's description.
    pub server: &'t Arc<ServerDescription>,
}

impl Deref for Candidate<'_> {
    type Target = ServerDescription;

    fn deref(&self) -> &ServerDescription {
        self.server
    }
}

/// Candidate servers of one topology, sorted by address. Up to eight need no allocation.
#[derive(Clone, Debug, Default)]
pub struct Candidates<'t>(SmallVec<[Candidate<'t>; 8]>);

impl<'t> Candidates<'t> {
    /// Keeps only the servers for which `keep` returns true.
    ///
    /// Servers cannot be added, so a selector can only narrow the choice.
    pub fn retain(&mut self, mut keep: impl FnMut(Candidate<'t>) -> bool) {
        self.0.retain(|candidate| keep(*candidate));
    }

    /// Returns the servers of `topology` for which `keep` returns true.
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

/// An application-provided server selector (Server Selection: "Application-Provided Server
/// Selector").
///
/// Closures with the signature of `select` implement this trait.
///
/// # Contract
///
/// `select` is called on the thread of the selection, with no lock held, once per attempt that
/// finds at least one suitable server, before the latency window is applied. It should be quick and
/// must not select from the same topology. With a selector and more than eight suitable servers,
/// selection allocates.
#[doc(alias = "serverSelector")]
pub trait Selector: Send + Sync {
    /// Removes servers from `suitable`. If none is left, selection waits for the topology to
    /// change.
    fn select(&self, suitable: &mut Candidates<'_>);
}

impl fmt::Debug for dyn Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Selector")
    }
}

impl<S: Selector + ?Sized> Selector for alloc::sync::Arc<S> {
    fn select(&self, suitable: &mut Candidates<'_>) {
        (**self).select(suitable);
    }
}

impl<F: Fn(&mut Candidates<'_>) + Send + Sync> Selector for F {
    fn select(&self, suitable: &mut Candidates<'_>) {
        self(suitable);
    }
}
