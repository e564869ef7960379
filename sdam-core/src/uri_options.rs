//! The options of connection strings (URI Options).

mod driver;
mod kind;
mod table;
#[cfg(test)]
mod tests;
mod value;

use alloc::collections::BTreeMap;

pub use driver::DriverOptions;
pub(crate) use driver::typed;
#[cfg(test)]
pub(crate) use kind::Kind;
pub(crate) use kind::Refusal;
pub(crate) use table::{Alias, EXCLUSIVE, REQUIRES, Repetition, Row, find, guards_by_name, rows};
pub(crate) use value::{HIDDEN, limit};
pub use value::{Properties, Secret, Value};

/// Option values by option name.
pub(crate) type Settings = BTreeMap<&'static str, Value>;
