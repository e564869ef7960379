//! The program `sdam`: shows what a client sees of a MongoDB deployment, and why.
//!
//! Each subcommand is a module with its arguments and a function that runs it. The function takes
//! the outputs as parameters, so tests can call it without starting a process. The feature
//! `export` adds the subcommand of the same name, and `tui` adds the full screen of `watch`.
//!
//! | module | subcommand |
//! | --- | --- |
//! | [`watch`] | `watch`: the servers of a deployment, and every change |
//! | [`doctor`] | `doctor`: problems of a deployment, seen from here, and their remedies |
//! | [`explain`] | `explain`: the server that an operation would go to, and why |
//! | [`export`] | `export`: metrics and health over HTTP |
//! | [`serve`] | `serve`: a simulated deployment on loopback |
//! | [`report`] | `report`: a recording as one page of HTML |
//!
//! Other modules: [`cli`] (the command line), [`output`] (the standard streams), [`target`] (the
//! deployment to connect to), [`exit`], [`recording`], [`terminal`], [`json`], [`log`], [`http`].

pub mod cli;
pub mod doctor;
pub mod exit;
pub mod explain;
#[cfg(feature = "export")]
pub mod export;
mod files;
#[cfg(feature = "export")]
pub mod http;
pub mod json;
pub mod log;
pub mod output;
#[cfg(feature = "export")]
mod page;
pub mod recording;
pub mod report;
pub mod serve;
pub mod target;
pub mod terminal;
#[cfg(test)]
mod testing;
mod time;
pub mod watch;

pub use cli::run;
