//! A simulated MongoDB deployment: replica sets, sharded clusters and standalones that speak the
//! wire protocol without doing I/O.
//!
//! A [`Deployment`] owns every server process of a deployment. Time and randomness are arguments,
//! bytes go in and come out, so the same servers answer over a virtual network and, through
//! [`serve`], over real TCP. Nothing here reads a clock except [`serve`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`config`], [`version`], [`timing`] | what is simulated |
//! | [`deployment`] | the processes, their elections, what a test may do to them |
//! | [`action`] | what a test may do, as data and as text |
//! | [`oracle`] | what must hold of every topology, judged by its record |
//! | [`runtime`] | a deterministic runtime around the deployment: virtual time, seeded scheduler, faulty network |
//! | [`scenario`] | what befalls a simulated world and when, as a file that can be mailed |
//! | [`serve`] | the same deployment on loopback TCP |
//!
//! [`guide`] shows whole tests of programs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod action;
pub mod config;
pub mod deployment;
pub mod guide;
pub mod oracle;
pub mod runtime;
pub mod scenario;
pub mod serve;
pub mod timing;
pub mod version;

mod fail_command;
mod member;
mod oplog;
mod reply;
mod request;
mod server;
mod store;
mod timers;

pub use crate::{
    action::Action,
    deployment::{Blueprint, ConnectionId, Deployment, MemberId, Output, Outputs},
};
