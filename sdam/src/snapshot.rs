//! The parts of a [`Snapshot`](crate::Snapshot), and a watch that waits for the next one.

pub use sdam_core::{
    hello::HelloFields,
    ids::{ObjectId, ServerId},
    server::WireVersions,
};

pub use crate::{
    engine::{
        failures::{ServerFailure, ServerFailures},
        snapshot::SnapshotGuard,
    },
    topology::TopologyWatch,
};
