//! Deployments that cannot be reached by their members' names. They are reached through address
//! translation or proxies; if both are missing, there is a diagnosis.

mod diagnosis;
mod wrapped;

use std::time::Duration;

use sdam::ServerAddress;

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}
