//! Connections and pools: what the pool of a topology is given, and the pool that the library has.
//!
//! # A pool of your own
//!
//! A [`PoolFactory`](crate::PoolFactory) creates the pool of each server. The topology marks it
//! ready and clears it ([`PoolHandle`](crate::PoolHandle)), and every selection returns a typed
//! reference to it. [`PoolContext::establish`](crate::PoolContext::establish) opens connections: it
//! connects, exchanges hello, and reports the reply or the error to the topology.
//!
//! # The pool of this crate
//!
//! With the feature `pool`, `Pools` is a factory of pools that implement CMAP on every runtime.
//!
//! # Authentication
//!
//! `TopologyBuilder::authenticate` (feature `pool`) authenticates the connections of every pool as
//! the options say. For a mechanism of your own, implement
//! [`Authenticator`](crate::Authenticator) and [`Conversation`].

pub use sdam_core::{ids::Generation, pool::PoolOptions};
#[cfg(feature = "pool")]
pub use sdam_pool::{Pin, Pool, PoolStats, PooledConnection, Pools};
pub use sdam_transport::pool::{AuthStep, CommandReply, Conversation, NoPools, ServiceConnection};
