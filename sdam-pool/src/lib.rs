#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod check_out;
mod connection;
mod core;
mod events;
mod factory;
mod inner;
mod interrupt;
mod machine;
mod member;
#[cfg(all(test, sdam_loom))]
mod models;
mod pool;
mod sync;
mod worker;

pub use crate::{
    connection::PooledConnection,
    factory::Pools,
    machine::{Pin, PoolStats},
    pool::Pool,
};
