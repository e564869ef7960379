#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod core;
mod inner;
mod machine;
#[cfg(all(test, sdam_loom))]
mod models;
mod pool;
mod worker;

pub use crate::{
    connection::PooledConnection,
    machine::{Pin, PoolStats},
    pool::{Pool, Pools},
};
