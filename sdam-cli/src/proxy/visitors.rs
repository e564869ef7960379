//! Detects clients that only send hello and then leave. The drivers of such clients have discovered
//! the members, and connect to them directly instead of using the proxy.
//!
//! In direct-connection mode, the monitor of a driver sends nothing but hello, too. Therefore a
//! client is reported only if no connection from its host has ever sent a command.

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use crate::lock::lock;

/// The maximum number of hosts that are remembered.
const MOST: usize = 10_000;

/// The hosts that have sent a command; `None` once no more clients will be reported.
#[derive(Debug)]
pub(super) struct Visitors(Mutex<Option<HashSet<IpAddr>>>);

impl Visitors {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(HashSet::new()))))
    }

    /// Records that `host` has sent a command. If there are too many hosts, forgets all of them;
    /// [`left`](Self::left) then returns false from now on.
    fn uses(&self, host: IpAddr) {
        let mut hosts = lock(&self.0);
        if let Some(hosts) = hosts.as_mut() {
            hosts.insert(host);
        }
        hosts.take_if(|hosts| hosts.len() > MOST);
    }

    /// Returns whether to report that a client on `host` has sent hello and left. Returns true at
    /// most once, so that there is only one report.
    pub(super) fn left(&self, host: IpAddr) -> bool {
        let mut hosts = lock(&self.0);
        hosts.take_if(|hosts| !hosts.contains(&host)).is_some()
    }
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Visit {
    visitors: Arc<Visitors>,
    host: IpAddr,
    uses: bool,
}

impl Visit {
    pub(super) fn new(visitors: Arc<Visitors>, host: IpAddr) -> Self {
        Self { visitors, host, uses: false }
    }

    /// Records that the client has sent a command other than hello.
    pub(super) fn uses(&mut self) {
        if !self.uses {
            self.uses = true;
            self.visitors.uses(self.host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_without_a_command_is_told_and_no_other() {
        let hosts = |count: u32| (1..=count).map(|host| IpAddr::from(host.to_be_bytes()));
        let visitors = Visitors::new();
        let new = IpAddr::from([127, 0, 0, 1]);
        hosts(9).for_each(|host| Visit::new(Arc::clone(&visitors), host).uses());
        assert!(hosts(9).all(|host| !visitors.left(host)));
        assert!(visitors.left(new) && !visitors.left(new));

        let visitors = Visitors::new();
        hosts(10_000).for_each(|host| visitors.uses(host));
        visitors.uses(new);
        assert!(!visitors.left([127, 0, 0, 2].into()));
    }
}
