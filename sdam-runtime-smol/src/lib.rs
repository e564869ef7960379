//! The smol runtime for sdam.
//!
//! smol's timers and sockets belong to the process, not to an executor: they work on every thread
//! and under every executor, and never shut down.
//! Only tasks need an executor: the global one ([`runtime`]) or the caller's own ([`on`]).
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod dial;
mod spawner;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sdam_transport::{
    runtime::{Backend, Runtime},
    spawn::Spawner,
    system,
};
#[doc(no_inline)]
pub use smol::Executor;

use self::{
    clock::SmolClock,
    dial::SmolDial,
    spawner::{GlobalSpawner, OwnSpawner},
};

/// Returns the smol runtime with its global executor, which starts its threads when the first task
/// is spawned.
///
/// The random seed comes from the system's entropy.
pub fn runtime() -> Runtime {
    with_spawner(Arc::new(GlobalSpawner))
}

/// Returns the smol runtime with tasks on `executor`, which the caller runs and keeps alive.
///
/// The runtime holds the executor weakly, because the executor's tasks hold the runtime. Dropping
/// the executor drops its tasks, and tasks spawned later are dropped immediately.
pub fn on(executor: &Arc<Executor<'static>>) -> Runtime {
    with_spawner(Arc::new(OwnSpawner::new(executor)))
}

fn with_spawner(spawner: Arc<dyn Spawner>) -> Runtime {
    let clock = Arc::new(SmolClock::new());
    Runtime::new(Backend::of_sockets(SmolDial, clock, system::entropy()), spawner)
}
