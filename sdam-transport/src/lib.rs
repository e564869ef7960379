//! Runtime interfaces and wire protocol for MongoDB monitoring.
//!
//! The code depends on no runtime, has no global state and makes no random choice: the clock,
//! transport, resolver, spawner, entropy and seed are passed in as values. Threads are spawned only
//! by [`system`], from which runtimes are built.
//!
//! | module | content |
//! | --- | --- |
//! | [`runtime`] | [`Backend`] and [`Runtime`]: the bundles of traits that an engine gets; the source of unique identifiers |
//! | [`clock`], [`spawn`], [`connect`], [`resolve`] | the traits that runtimes implement |
//! | [`error`] | errors of the system and of the codec, as [`Error`](sdam_core::error::Error) |
//! | [`layers`], [`tls`] | the addresses to dial, the proxy, TLS over any stream |
//! | [`handshake`] | client metadata |
//! | [`pool`] | the interface of connection pools, and connections that report to the topology |
//! | [`wire`] | whole wire messages, validated |
//! | [`stream`], [`framed`], [`dial`], [`race`], [`net`] | a transport for runtimes with sockets |
//! | [`system`] | shared parts of runtimes: entropy, epoch, timers, look-ups, socket options |
//! | [`local`], [`pipe`] | adapters for tasks and sockets that stay on one thread |
//!
//! The crate `sdam-testkit` contains the conformance suite for runtimes, and a clock that tests
//! advance.
//!
//! # Implementing a runtime
//!
//! A runtime with sockets implements [`Clock`], [`Spawner`] and [`Dial`], turns the dialer into a
//! transport with [`NetTransport`], and bundles everything in a [`Runtime`]. A runtime that
//! exchanges whole messages implements [`Transport`] itself. Implementations of [`Dial`],
//! [`Transport`], [`Connection`] and [`Resolver`] carry the attribute
//! [`async_trait`](macro@async_trait), re-exported here.
//!
//! [`system::SystemClock`] is a clock that creates its timers with a given function, and
//! [`spawn::SpawnBy`] is a spawner that passes tasks to a given function. If a runtime lacks a
//! part, this crate provides a replacement: [`system::ThreadClock`] is a clock for all runtimes,
//! and [`system::lookup_host`] resolves host names. If futures and sockets cannot leave their thread,
//! [`local::Remote`] is the spawner and also sends other work to that thread, and [`pipe::piped`]
//! turns a socket into a stream.
//!
//! [`Backend`]: runtime::Backend
//! [`Clock`]: clock::Clock
//! [`Connection`]: connect::Connection
//! [`Dial`]: dial::Dial
//! [`NetTransport`]: net::NetTransport
//! [`Resolver`]: resolve::Resolver
//! [`Runtime`]: runtime::Runtime
//! [`Spawner`]: spawn::Spawner
//! [`Transport`]: connect::Transport
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
pub mod connect;
pub mod dial;
pub mod error;
pub mod framed;
pub mod handshake;
pub mod layers;
pub mod local;
pub mod net;
pub mod pipe;
pub mod pool;
pub mod race;
pub mod resolve;
pub mod runtime;
mod socks;
pub mod spawn;
pub mod stream;
pub mod system;
pub mod tls;
pub mod wire;

pub use async_trait::async_trait;
pub use futures::future::BoxFuture;

/// The message of a caught panic.
#[doc(hidden)]
pub mod panic {
    use std::any::Any;

    /// Returns the message of the panic.
    pub fn text(payload: &(dyn Any + Send)) -> &str {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        text.unwrap_or("without a text")
    }
}
