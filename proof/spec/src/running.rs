//! The environment and the checks that multi-threaded and single-threaded topologies share.

pub(crate) mod deployment;
pub(crate) mod events;
pub(crate) mod selection;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

use sdam_core::options::{Options, ServerMonitoringMode};
use sdam_testkit::{RecordingPool, RecordingPools};
use sdam_transport::handshake::{ClientMetadata, Environment};

/// A topology with recording pools.
pub(crate) type Topology = sdam::Topology<RecordingPool>;
/// A builder for topologies with recording pools.
pub(crate) type TopologyBuilder = sdam::TopologyBuilder<RecordingPool>;
/// A single-threaded topology with recording pools.
pub(crate) type ScanTopology = sdam::ScanTopology<RecordingPool>;

/// Creates the builder for a topology that polls its servers and whose checks have no timeout.
pub(crate) fn builder(
    mut options: Options,
    pools: &RecordingPools,
) -> Result<TopologyBuilder, String> {
    options.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.connect_timeout = None;
    let metadata = client_metadata()?;
    Ok(sdam::TopologyBuilder::new(options).metadata(metadata).pools(pools.clone()))
}

/// Returns the client metadata of the tests, without an application name.
pub(crate) fn client_metadata() -> Result<ClientMetadata, String> {
    let metadata = ClientMetadata::new(
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        &Environment::default(),
    );
    metadata.map_err(|error| error.to_string())
}

/// Fails if a number in `left` is not 0: a closed topology must not leave anything behind.
pub(crate) fn check_nothing_left(left: &[(&str, usize)]) -> Result<(), String> {
    match left.iter().find(|(_, number)| *number > 0) {
        Some((what, number)) => {
            Err(format!("{number} {what} are left after the topology was closed"))
        }
        None => Ok(()),
    }
}

/// Locks the mutex even if a test that held the lock panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
