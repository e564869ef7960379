//! Shared monitoring of deployments.

use std::sync::{Arc, PoisonError, Weak};

use sdam_core::{
    ids::ObjectId,
    options::{ConfigError, Options},
    view::View,
};
use sdam_select::settings::Settings;
use sdam_transport::{
    layers::Translate,
    pool::PoolHandle,
    runtime::{Backend, Runtime},
};

use super::{
    Topology, TopologyBuilder,
    builder::{Assembled, Layering, dispatch, queue},
    layers,
    shared::{Background, Shared, TaskSet},
    sharing::{Place, Sharing},
};
use crate::{engine::Machine, metadata::Metadata, sync::Mutex};

/// A collection of deployments, each of which is watched only once, however many handles use it.
///
/// [`open`](Self::open) returns a [`Topology`] with pools, selection settings, sinks and an
/// application name of its own. Handles share the monitors of a deployment if their own monitors
/// would be the same, that is, if they have the same seeds, set name, TLS files, proxy,
/// [translation](TopologyBuilder::translate) and monitoring options ([`Options::watches_alike`]).
/// The name of a replica set alone never suffices. The first handle's builder determines the
/// metadata that monitors send. Monitoring ends when the last handle is closed or dropped.
///
/// A new handle knows a server at once if other handles already know it. No handle disturbs
/// another: closing it, a panic of its pools, and errors that concern only its user or its hello
/// have no effect on other handles. Every other error that a handle reports, such as a broken
/// connection, concerns all of them.
///
/// Differences from a topology that watches its deployment alone:
///
/// - While a pool of a handle is called, the handle's engine is locked, and the engines of other
///   handles are not. Handles follow the deployment one after the other, so a slow pool delays them
///   all.
/// - A pool's panic is re-raised only in the thread that closes the handle, or that reports an
///   error that concerns only the handle's own hello or user.
/// - Handles without pools share one count of operations for each server.
/// - Sinks do not receive [`Input`](sdam_core::event::EventKind::Input) and
///   [`RttMeasured`](sdam_core::event::EventKind::RttMeasured).
/// - Behind a load balancer nothing is monitored, so nothing is shared.
///
/// ```no_run
/// # #[cfg(feature = "runtime-tokio")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use sdam::{Deployments, Topology};
///
/// let deployments = Deployments::new(sdam::runtime::tokio()?);
/// let uri = "mongodb://db-0.example.com/?replicaSet=rs0";
/// let orders = deployments.open(Topology::builder(&format!("{uri}&appName=orders"))?)?;
/// let stock = deployments.open(Topology::builder(&format!("{uri}&appName=stock"))?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Deployments {
    runtime: Runtime,
    watched: Arc<Mutex<Vec<Watched>>>,
}

/// A deployment that is watched.
#[derive(Debug)]
struct Watched {
    base: Weak<Shared>,
    translate: Option<Arc<dyn Translate>>,
    /// True if the first handle's builder had metadata of its own, which other handles must not
    /// send.
    has_metadata: bool,
}

impl Watched {
    /// Returns a place on the deployment for the handle that the builder describes, if that handle
    /// would watch the deployment in the same way and the last handle has not left yet.
    fn reserve<P>(&self, builder: &TopologyBuilder<P>) -> Option<Place> {
        let base = self.base.upgrade()?;
        let same_translation = match (&self.translate, &builder.translate) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            _ => false,
        };
        if !same_translation || !base.common.options.watches_alike(&builder.options) {
            return None;
        }
        Place::reserve(base)
    }
}

impl Deployments {
    /// Creates an empty collection, whose handles all use `runtime`.
    pub fn new(runtime: Runtime) -> Self {
        Self { runtime, watched: Arc::default() }
    }

    /// Opens a handle on the deployment that the builder's options describe, and begins to watch
    /// it if it is not watched yet. Performs no I/O itself and does not wait.
    ///
    /// # Errors
    ///
    /// As [`TopologyBuilder::start`].
    pub fn open<P: PoolHandle>(
        &self,
        builder: TopologyBuilder<P>,
    ) -> Result<Topology<P>, ConfigError> {
        if builder.options.load_balanced {
            return builder.start(self.runtime.clone());
        }
        builder.options.validate()?;
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|own| own.base.strong_count() > 0);
        let known = watched
            .iter()
            .find_map(|own| own.reserve(&builder).map(|place| (place, own.has_metadata)));
        let is_new = known.is_none();
        let (place, has_metadata) = if let Some(known) = known {
            known
        } else {
            let (base, _) = builder.watcher().assemble(self.runtime.clone(), true)?;
            let has_metadata = builder.metadata.is_some();
            let translate = builder.translate.clone();
            watched.push(Watched { base: Arc::downgrade(&base), translate, has_metadata });
            (Place::first(base), has_metadata)
        };
        // The lock must not be held below, where pools are called.
        drop(watched);
        let opened =
            builder.handle(&place, has_metadata, &self.runtime.backend).map(|(handle, sink)| {
                if let Some(sink) = sink {
                    dispatch(&handle, sink);
                }
                place.take(&handle);
                handle
            });
        if is_new {
            // Other handles may already be using the deployment, even if this one could not be
            // opened.
            place.base().open();
        }
        let handle = opened?;
        handle.publish_warnings();
        Ok(Topology::new(handle))
    }
}

impl<P: PoolHandle> TopologyBuilder<P> {
    /// Returns a builder for a topology that watches the deployment described by this builder.
    fn watcher(&self) -> TopologyBuilder {
        let mut watcher = TopologyBuilder::new(self.options.clone());
        watcher.translate.clone_from(&self.translate);
        watcher.metadata = self.metadata.as_ref().map(Metadata::copied);
        watcher
    }

    /// Assembles a handle, which is not open yet. The handle shares the deployment's unchanging
    /// part if its own unchanging part would be the same, unless the deployment was started with
    /// metadata of its own (`has_metadata`).
    fn handle(
        mut self,
        place: &Place,
        has_metadata: bool,
        runtime: &Backend,
    ) -> Result<Assembled, ConfigError> {
        let base = place.base();
        layers::require_certificate(runtime, &self.options)?;
        // Connections of this handle need the same layers as those of the monitors.
        let mut backend = base.common.backend.clone();
        let id = self.id.unwrap_or_else(|| ObjectId::from_bytes(backend.unique_bytes()));
        let sink = self.take_sink();
        let events = match &sink {
            Some(_) => queue(id, sink.as_ref(), &backend),
            // Without a sink, a queue keeps no events, so the deployment's queue will do.
            None => Arc::clone(&base.events),
        };
        // The topology that watches the deployment has no pools either, so its factory can be
        // reused.
        let pools = if self.pools.is_none() { base.pools() } else { Arc::clone(&self.pools) };
        let own = (pools, events, self.history.clone());
        let is_plain = self.metadata.is_none()
            && !has_metadata
            && self.selector.is_none()
            && self.options == base.common.options;
        let common = if is_plain {
            Arc::clone(&base.common)
        } else {
            let warnings = Options::multi_threaded_warnings;
            let mut prepared = self.prepare(&mut backend, Layering::Done, warnings)?;
            let settings = prepared.settings(Settings::new);
            let seed = prepared.rng.next_u64();
            let runtime = (backend, base.common.spawner.clone());
            Arc::new(prepared.common(settings, runtime, seed))
        };
        let machine = Machine::View(View::default());
        let background = Background::Tasks(TaskSet::default());
        let sharing = Sharing::Handle(Arc::clone(base));
        Ok((Shared::assemble(machine, own, background, (common, id, sharing)), sink))
    }
}
