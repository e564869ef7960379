//! The options that connection strings may carry (URI Options).

mod driver;
mod kind;
mod table;
#[cfg(test)]
mod tests;
mod value;

use alloc::collections::BTreeMap;

pub use driver::DriverOptions;
#[cfg(test)]
pub(crate) use kind::Kind;
pub(crate) use kind::Refusal;
#[cfg(test)]
pub(crate) use table::rows;
pub(crate) use table::{Alias, EXCLUSIVE, REQUIRES, Repetition, Row, find, guards_by_name};
pub(crate) use value::HIDDEN;
pub use value::{Properties, Secret, Value};

/// Option values by option name.
pub(crate) type Settings = BTreeMap<&'static str, Value>;
