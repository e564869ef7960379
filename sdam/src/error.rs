//! The parts of an [`Error`](crate::Error) and of its report to a topology.
//!
//! Three types of errors exist: [`ConfigError`](crate::ConfigError) for an option that is wrong,
//! [`SelectionError`](crate::SelectionError) for a selection without a server, and
//! [`Error`](crate::Error) for everything that fails between this program and a server.

pub use sdam_core::{
    error::{ErrorOutcome, Stage},
    report::ErrorReport,
};
