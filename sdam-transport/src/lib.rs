//! Runtime seams and wire protocol for MongoDB monitoring.
//!
//! Its code names no runtime, keeps no state outside values and makes no choice at random:
//! whatever touches the world comes in through a seam, as a value.
//! Only [`system`], from which runtimes are built, spawns threads.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`runtime`] | [`runtime::Io`] and [`runtime::Runtime`]: the bundles of seams an engine is given |
//! | [`clock`], [`spawn`], [`connect`], [`resolve`] | the seams |
//! | [`error`] | what a seam reports when it fails |
//! | [`handshake`] | what clients tell servers about themselves |
//! | [`wire`] | whole wire messages, validated |
//! | [`stream`], [`framed`], [`dial`], [`race`], [`net`] | a transport for every runtime that has sockets |
//! | [`system`] | what runtimes over an operating system share: entropy, an epoch, timers, look-ups |
//! | [`local`], [`pipe`] | what turns tasks and sockets that stay on one thread into seams |
//! | `conformance` | the suite by which a runtime is tested (feature `conformance`) |
//!
//! # Bringing a runtime
//!
//! A runtime that has sockets implements [`clock::Clock`], [`spawn::Spawner`] and [`dial::Dial`],
//! makes a transport of the latter by [`net::NetTransport`], and bundles all of it in a
//! [`runtime::Runtime`]. One that exchanges whole messages implements [`connect::Transport`]
//! itself.
//!
//! What a runtime lacks is here: [`system::ThreadClock`] is a clock for all, and
//! [`system::lookup_ip`] a resolver. Where futures and sockets cannot leave their thread,
//! [`local::Remote`] is the spawner and takes other work there, and [`pipe::piped`] makes a stream of
//! a socket.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod connect;
pub mod dial;
pub mod error;
pub mod framed;
pub mod handshake;
pub mod local;
pub mod net;
pub mod pipe;
pub mod race;
pub mod resolve;
pub mod runtime;
pub mod spawn;
pub mod stream;
pub mod system;
#[cfg(test)]
mod testing;
pub mod wire;
