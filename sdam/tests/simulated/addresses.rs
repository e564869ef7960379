//! Tests deployments that cannot be reached by their members' names. Clients reach them through
//! address translation or proxies; without either, errors and events contain a diagnosis.

mod diagnosis;
mod wrapped;

use std::time::Duration;

use sdam::ServerAddress;

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}
