//! What the examples consist of, apart from their `main`: programs as functions of their arguments,
//! so that they can be tested without a process.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`watch`] | what `cargo run --example watch` shows of a deployment |
//! | [`select`] | what `cargo run --example select` says of a selection |
//! | [`metrics`] | what `cargo run --example metrics` serves of a deployment |
//! | [`replay`] | the what-if of `cargo run --example replay` |
//! | [`http`] | pages for other programs |
//! | [`json`] | a topology as a JSON document |
//! | [`log`] | log messages as lines of text |
//! | [`terminal`] | colours and lines of 80 columns |
//! | [`output`] | writing without ever waiting for the reader |
//! | [`exit`] | how programs end |

pub mod exit;
mod failure;
pub mod http;
pub mod json;
pub mod log;
pub mod metrics;
pub mod output;
pub mod replay;
pub mod select;
pub mod terminal;
pub mod watch;
