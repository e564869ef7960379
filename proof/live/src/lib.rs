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

mod certificates;
mod client;
mod daemon;
mod debian;
mod dns;
mod error;
mod fail_point;
mod fetch;
mod locate;
mod mongod;
mod port;
mod process;
mod prometheus;
mod relay;
mod replica_set;
mod scram;
mod security;
mod skip;
mod socks;
mod terminal;
mod tls;
mod version;
mod wait;
mod workdir;

pub use crate::certificates::{Certificates, ServerCertificate};
pub use crate::client::Client;
pub use crate::daemon::Daemon;
pub use crate::dns::{Dns, Record, RecordType};
pub use crate::error::{CommandError, Error, Unavailable};
pub use crate::fail_point::{FailCommand, FailPoint};
pub use crate::locate::mongod_path;
pub use crate::mongod::Mongod;
pub use crate::port::Port;
pub use crate::prometheus::Prometheus;
pub use crate::replica_set::{MemberSpec, ReplicaSet, ReplicaSetBuilder};
pub use crate::security::ROOT;
pub use crate::skip::or_skip;
pub use crate::socks::Socks;
pub use crate::terminal::Terminal;
pub use crate::tls::ServerTls;
pub use crate::version::{InvalidVersion, Version};
pub use crate::workdir::target_dir;
