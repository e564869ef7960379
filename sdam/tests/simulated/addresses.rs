//! Deployments that cannot be reached by their members' names: through address translation and
//! proxies, and the diagnoses if both are missing.

mod diagnosis;
mod wrapped;

use std::time::Duration;

use sdam::ServerAddress;

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}
