//! The smol runtime for sdam.
//!
//! smol's timers and sockets belong to the process, not to an executor: they work on every thread
//! and under every executor, and never shut down.
//! Only tasks need an executor: the global one ([`runtime`]) or the caller's own ([`on`]).
#![cfg_attr(docsrs, feature(doc_cfg))]

mod dial;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::FutureExt as _;
use sdam_transport::{
    runtime::{Backend, Runtime},
    spawn::{SpawnBy, Task},
    system::{self, Epoch, SystemClock},
};
#[doc(no_inline)]
pub use smol::Executor;
use smol::Timer;

use self::dial::SmolDial;

/// Returns the smol runtime with its global executor, which starts its threads when the first task
/// is spawned.
///
/// The random seed comes from the system's entropy.
pub fn runtime() -> Runtime {
    spawning_by(|task| smol::spawn(task).detach())
}

/// Returns the smol runtime, with its tasks on `executor`. The caller must run the executor and
/// keep it alive.
///
/// The runtime holds only a weak reference to the executor, because the executor's tasks hold the
/// runtime. Dropping the executor drops its tasks, and tasks that are spawned later are dropped
/// immediately.
pub fn on(executor: &Arc<Executor<'static>>) -> Runtime {
    let executor = Arc::downgrade(executor);
    spawning_by(move |task| {
        if let Some(executor) = executor.upgrade() {
            executor.spawn(task).detach();
        }
    })
}

fn spawning_by(spawn: impl Fn(Task) + Send + Sync + 'static) -> Runtime {
    let clock = SystemClock::new(Epoch::begin(), |epoch, deadline| {
        let at = epoch.to_system(deadline);
        at.map_or_else(Timer::never, Timer::at).map(drop).boxed()
    });
    let backend = Backend::of_sockets(SmolDial, Arc::new(clock), system::entropy());
    Runtime::new(backend, Arc::new(SpawnBy { runtime: "smol", spawn }))
}
