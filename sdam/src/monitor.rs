//! The connections of checks, and their timer.

pub(crate) mod connection;
pub(crate) mod links;
pub(crate) mod timer;
