//! Authenticates the connections of MongoDB pools.
//!
//! [`authenticator`] creates an [`Authenticator`] from the options of a connection string.
//! `TopologyBuilder::authenticate` of `sdam` does so for all connections of a topology.
//!
//! ```
//! use sdam_core::options::Options;
//!
//! let options = Options::parse("mongodb://ada:pencil@db-0.example.com/?authSource=staff")?;
//! let authenticator = sdam_auth::authenticator(&options)?;
//! assert!(authenticator.is_some());
//!
//! let options = Options::parse("mongodb://ada@db-0.example.com/?authMechanism=GSSAPI")?;
//! let error = sdam_auth::authenticator(&options).unwrap_err();
//! assert_eq!(error.option(), "authMechanism");
//! # Ok::<_, sdam_core::options::ConfigError>(())
//! ```
//!
//! | mechanism | supported |
//! | --- | --- |
//! | none given | SCRAM-SHA-256 if the user has it, else SCRAM-SHA-1 (Authentication: "Default Authentication Methods") |
//! | `SCRAM-SHA-256`, `SCRAM-SHA-1` | yes, with speculative authentication and a cache of keys |
//! | `MONGODB-X509` | yes; the transport presents the client's certificate |
//! | `PLAIN` | yes, on encrypted connections only |
//! | `GSSAPI`, `MONGODB-AWS`, `MONGODB-OIDC` | no: implement [`Authenticator`] |
//!
//! The protocols are state machines without I/O. The crate reads no clock and has no global
//! state. Random numbers come from an [`Entropy`](sdam_transport::runtime::Entropy), by default the
//! operating system's.

mod account;
mod config;
mod conversation;
mod scram;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::sync::Arc;

use sdam_core::options::{ConfigError, Options};
use sdam_transport::pool::Authenticator;

pub use self::{account::Account, scram::Mechanism};

/// Returns the authenticator for the credential in `options`, or `None` if there is no credential.
///
/// # Errors
///
/// If the mechanism is not supported, or if the credential lacks parts that the mechanism needs or
/// has parts that it does not allow.
pub fn authenticator(options: &Options) -> Result<Option<Arc<dyn Authenticator>>, ConfigError> {
    let account = Account::of(options)?;
    Ok(account.map(|account| Arc::new(account) as Arc<dyn Authenticator>))
}
