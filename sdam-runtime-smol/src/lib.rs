//! The smol runtime for sdam.
//!
//! smol's timers and sockets belong to the process, not to an executor: they work on every thread
//! and under every executor, and never shut down.
//! Only tasks need an executor: the global one ([`runtime`]) or the caller's own ([`on`]).
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(unix))]
use std::net::TcpStream as UnixStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use futures::{FutureExt as _, future::Either};
use sdam_transport::{
    async_trait,
    dial::{Dial, DialOptions, DialTarget},
    runtime::{Backend, Runtime},
    spawn::{SpawnBy, Task},
    stream::NonBlocking,
    system::{self, Epoch, SystemClock, tune_tcp},
};
#[doc(no_inline)]
pub use smol::Executor;
use smol::{Async, Timer, net};

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

/// The dialer, which connects sockets and looks up host names.
#[derive(Debug)]
struct SmolDial;

#[async_trait]
impl Dial for SmolDial {
    type Stream = Either<NonBlocking<Async<TcpStream>>, NonBlocking<Async<UnixStream>>>;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = Async::<TcpStream>::connect(*address).await?;
                tune_tcp(&stream, options.user_timeout)?;
                Ok(Either::Left(NonBlocking(stream)))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = Async::<UnixStream>::connect(path).await?;
                Ok(Either::Right(NonBlocking(stream)))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        net::resolve((host, 0)).await
    }
}

#[cfg(test)]
mod tests {
    //! Runs the conformance suite on the global executor and on a local one.

    use std::{
        sync::{Arc, mpsc},
        thread,
    };

    use sdam_testkit::conformance;
    use smol::{Executor, channel};

    #[test]
    fn runtime_keeps_its_contracts() {
        let runtime = super::runtime();
        conformance::runtime(&runtime);
        conformance::dial(super::SmolDial, runtime.backend.clock);
    }

    #[test]
    fn a_runtime_on_a_stopped_executor_keeps_its_contracts() {
        let executor = Arc::new(Executor::new());
        let runtime = super::on(&executor);
        let (stop, stopped) = channel::bounded::<()>(1);
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            // When `stop` is dropped, `run` ends, and then the executor is dropped.
            let _ = smol::block_on(executor.run(stopped.recv()));
            drop(executor);
            done.send(())
        });
        conformance::runtime(&runtime);
        conformance::shutdown(&runtime, || {
            drop(stop);
            ended.recv().unwrap();
        });
    }
}
