//! Tests of TLS with rustls servers, both in memory, where every poll is controlled, and on
//! loopback through the transport of each runtime.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod broken;
mod certificates;
mod cost;
mod files;
mod handshakes;
mod runtimes;
mod server;
mod streams;
mod terminated;
