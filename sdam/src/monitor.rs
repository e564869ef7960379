//! The connections of checks.

pub(crate) mod connection;
pub(crate) mod links;
