//! Real servers for the tests of the workspace.
//!
//! This crate starts `mongod` processes on loopback, forms replica sets, and sends commands over
//! blocking sockets, with or without TLS. It also starts DNS servers, SOCKS5 proxies and
//! Prometheus, and creates certificates. It does not depend on the code under test, so bugs in that
//! code cannot affect it. It is not published.
//!
//! ```no_run
//! use sdam_live::{MemberSpec, ReplicaSet, Version, or_skip};
//!
//! # fn main() -> Result<(), sdam_live::Error> {
//! let members = [MemberSpec::new(), MemberSpec::new(), MemberSpec::new().priority(0.0)];
//! let Some(set) = or_skip(ReplicaSet::start(Version::V6_0, &members))? else { return Ok(()) };
//! let old = set.step_down()?;
//! assert_ne!(set.primary()?, old);
//! # Ok(())
//! # }
//! ```
//!
//! Dropping a server kills it and removes its data. The same happens if the test process dies
//! without dropping it. Methods take `&self`, so that the threads of a test can share a set.

mod client;
mod daemon;
mod debian;
mod dns;
mod error;
mod fetch;
mod mongod;
mod replica_set;
mod tls;

pub use crate::client::Client;
pub use crate::daemon::{Daemon, Port, target_dir, work_dir_in};
pub use crate::debian::{Prometheus, Socks, Terminal};
pub use crate::dns::{Dns, Record, RecordType};
pub use crate::error::{CommandError, Error, Unavailable, or_skip};
pub use crate::fetch::{Version, mongod_path};
pub use crate::mongod::{FailCommand, FailPoint, Mongod, ROOT};
pub use crate::replica_set::{MemberSpec, ReplicaSet, ReplicaSetBuilder};
pub use crate::tls::{Certificates, ServerCertificate, ServerTls};
