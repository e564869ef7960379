//! The async-std runtime for sdam, for compatibility.
//!
//! async-std is no longer developed (RUSTSEC-2025-0052); new programs should use smol, which is
//! built on the same crates. This crate is for programs that still run on async-std.
//!
//! async-std has one runtime per process. It starts at first use and never shuts down, so the
//! clock, connections and tasks work on every thread and under every executor.
#![cfg_attr(docsrs, feature(doc_cfg))]

use std::{io, net::SocketAddr, sync::Arc};

#[cfg(not(unix))]
use async_std::net::TcpStream as UnixStream;
#[cfg(unix)]
use async_std::os::unix::net::UnixStream;
use async_std::{
    net::{TcpStream, ToSocketAddrs as _},
    task,
};
use futures::future::Either;
use sdam_core::time::Instant;
use sdam_transport::{
    BoxFuture, async_trait,
    dial::{Dial, DialOptions, DialTarget},
    runtime::{Backend, Runtime},
    spawn::SpawnBy,
    stream::NonBlocking,
    system::{self, Epoch, SystemClock, tune_tcp},
};

/// Returns the async-std runtime of the process.
///
/// The random seed comes from the system's entropy.
pub fn runtime() -> Runtime {
    let clock = Arc::new(SystemClock::new(Epoch::begin(), sleep));
    let backend = Backend::of_sockets(AsyncStdDial, clock, system::entropy());
    // Dropping the join handle detaches the task.
    let spawner = SpawnBy { runtime: "async-std", spawn: |task| drop(task::spawn(task)) };
    Runtime::new(backend, Arc::new(spawner))
}

/// Sleeps until `deadline`. async-std's `sleep` takes a duration, so the remaining time is computed
/// when the future is first polled.
fn sleep(epoch: Epoch, deadline: Instant) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        while epoch.now() < deadline {
            task::sleep(epoch.until(deadline)).await;
        }
    })
}

/// The dialer, which connects sockets and looks up host names.
#[derive(Debug)]
struct AsyncStdDial;

#[async_trait]
impl Dial for AsyncStdDial {
    type Stream = Either<NonBlocking<TcpStream>, NonBlocking<UnixStream>>;

    async fn dial(&self, target: &DialTarget, options: DialOptions) -> io::Result<Self::Stream> {
        match target {
            DialTarget::Tcp(address) => {
                let stream = TcpStream::connect(*address).await?;
                tune_tcp(&stream, options.user_timeout)?;
                Ok(Either::Left(NonBlocking(stream)))
            }
            #[cfg(unix)]
            DialTarget::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                Ok(Either::Right(NonBlocking(stream)))
            }
            other => Err(other.unsupported()),
        }
    }

    async fn lookup_host(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        Ok((host, 0).to_socket_addrs().await?.collect())
    }
}

#[cfg(test)]
mod tests {
    //! Runs the conformance suite against the runtime.

    use sdam_testkit::conformance;

    #[test]
    fn runtime_keeps_its_contracts() {
        let runtime = super::runtime();
        conformance::runtime(&runtime);
        conformance::dial(super::AsyncStdDial, runtime.backend.clock);
    }
}
