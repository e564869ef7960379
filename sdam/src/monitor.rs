//! The connections that checks use.

pub(crate) mod connection;
pub(crate) mod links;
