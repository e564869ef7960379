//! The official specification tests, as functions that check a test file.
//!
//! This crate contains no test files: [`corpus`] finds the downloaded files and refuses to run an
//! incomplete folder. [`sdam`], [`selection`] and [`uri`] each implement the formats of one
//! specification: they convert a file to descriptions, run the code under test and report the first
//! difference. [`engine`] runs the same files against a running topology on any runtime, and
//! [`scan`] against a topology in single-threaded mode. [`srv`] looks up seed lists, and
//! [`unified`] runs files that need a complete deployment. [`suite`] lists all suites.
//!
//! A check fails on any unknown key, type or value, because otherwise a test could pass although
//! only a part of it was run.

pub mod auth;
pub mod cmap;
pub mod corpus;
pub mod engine;
pub mod fields;
pub mod host;
pub mod requirement;
pub mod run;
mod running;
pub mod scan;
pub mod sdam;
pub mod selection;
pub mod srv;
pub mod suite;
pub mod unified;
pub mod uri;
mod wire;
