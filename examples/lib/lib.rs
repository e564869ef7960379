//! The code of the larger examples except their `main`: programs as functions of their arguments, so
//! that they can be tested without a process.
//!
//! The examples that show the API, `quick_start` first, are each one file without this library.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`watch`] | the program of `cargo run --example watch` |
//! | [`select`] | the program of `cargo run --example select` |
//! | [`metrics`] | the program of `cargo run --example metrics` |
//! | [`replay`] | the program of `cargo run --example replay` |
//! | [`http`] | a minimal HTTP server |
//! | [`json`] | a topology as a JSON document |
//! | [`log`] | log messages as lines of text |
//! | [`terminal`] | colours and lines of 80 columns |
//! | [`output`] | output without blocking on the reader |
//! | [`exit`] | exit codes |

pub mod exit;
mod failure;
#[cfg(doctest)]
mod guide;
pub mod http;
pub mod json;
pub mod log;
pub mod metrics;
pub mod output;
pub mod replay;
pub mod select;
pub mod terminal;
pub mod watch;

/// Compiles the program of the front page.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
