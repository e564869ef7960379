//! The official specification tests, as functions from a file to a verdict.
//!
//! This crate holds no test file: [`corpus`] finds them where they were fetched to and refuses to
//! run a folder with fewer files than it should have. [`sdam`], [`selection`] and [`uri`] know the
//! formats of one specification each; they turn a file into descriptions, run the code under test
//! and name the first difference. [`engine`] runs the same files against a running topology, on
//! whichever runtime it is given, [`scan`] against one in single-threaded mode, and [`unified`] runs
//! files that need a whole deployment. [`suite`] lists what there is to run.
//!
//! A check fails on anything it does not know: a key, a type or a value that is not expected would
//! otherwise be a test that passes because it is not run.

pub mod corpus;
pub mod engine;
pub mod json;
mod running;
pub mod scan;
pub mod sdam;
pub mod selection;
pub mod suite;
pub mod unified;
pub mod uri;
