//! A simulated MongoDB deployment: replica sets, sharded clusters and standalones that speak the
//! wire protocol without I/O.
//!
//! A [`Cluster`] contains all of its server processes. Time, randomness and bytes are passed as
//! arguments, so that the same servers can run over a virtual network or, through [`serve`], over
//! real TCP. Only [`serve`] reads a clock.
//!
//! A [`Blueprint`] describes the deployment. It runs in one of two ways:
//!
//! | to get | use |
//! | --- | --- |
//! | virtual time, where a seed reproduces the run | `Sim::new(seed, &Blueprint::replica_set(3))`, see [`runtime::Sim`] |
//! | loopback TCP, for any driver | `Blueprint::replica_set(3).serve()?`, see [`serve`] |
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`], [`version`], [`timing`] | the simulated configuration, release and durations |
//! | [`deployment`] | the processes, their elections, and the actions of a test |
//! | [`action`] | the actions of a test, as data and as text |
//! | [`oracle`] | invariants that every topology must satisfy, checked against its record |
//! | [`runtime`] | a deterministic runtime around the deployment: virtual time, seeded scheduler, faulty network, DNS, TLS, proxies |
//! | [`scenario`] | timed faults of a simulated world, as a value and as a text file |
//! | [`serve`] | the same deployment on loopback TCP |
//! | `users` | users that authenticate by SCRAM (feature `auth`) |
//!
//! [`cookbook`] contains complete tests of example programs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod action;
pub mod config;
pub mod cookbook;
pub mod deployment;
pub mod oracle;
pub mod runtime;
pub mod scenario;
pub mod serve;
pub mod timing;
pub mod version;

mod fail_command;
mod member;
mod message;
mod store;
#[cfg(feature = "auth")]
pub mod users;

#[cfg(feature = "auth")]
#[doc(inline)]
pub use crate::users::User;
#[doc(inline)]
pub use crate::{
    action::{Action, Target},
    config::{MemberConfig, SetConfig},
    deployment::{Blueprint, Cluster, ConnectionId, MemberId, Output, Outputs, Role},
    runtime::Sim,
    scenario::Scenario,
    serve::Served,
    timing::Timing,
    version::ServerVersion,
};
