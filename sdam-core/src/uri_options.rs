//! The options of connection strings (URI Options).

mod kind;
mod table;
mod value;

use alloc::collections::BTreeMap;

#[cfg(test)]
pub(crate) use kind::Kind;
pub(crate) use kind::Refusal;
pub(crate) use table::{Alias, EXCLUSIVE, REQUIRES, Repetition, Row, find, guards_by_name, rows};
pub(crate) use value::{HIDDEN, limit, typed};
pub use value::{Properties, Secret, Value};

/// Option values by option name.
pub(crate) type Settings = BTreeMap<&'static str, Value>;
