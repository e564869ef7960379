//! The order in which a scan checks servers (SDAM: "Scanning order").

use alloc::collections::BTreeMap;

use crate::{
    address::ServerAddress,
    error::Stage,
    ids::ServerId,
    options::COOLDOWN,
    rng::Rng,
    server::{ServerDescription, ServerType},
    time::Instant,
    topology::TopologyDescription,
};

/// The maximum number of times that one scan checks an address: once, and a second time if the
/// connection broke or if another server's reply reset the server to "never checked".
const MAX_CHECKS: u8 = 2;

/// A scan in progress.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    started: Instant,
    /// The number of checks per address, sorted by address.
    ///
    /// The key is the address rather than the server id: otherwise, servers that repeatedly remove
    /// and add each other would make a scan endless.
    checks: BTreeMap<ServerAddress, u8>,
    /// True if only a single server is checked.
    pub(super) single: bool,
    /// True if the call that began the scan was abandoned, so that any amount of time may have
    /// passed.
    pub(super) resumed: bool,
}

impl Scan {
    /// Creates a scan of all servers that begins at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { started: now, checks: BTreeMap::new(), single: false, resumed: false }
    }

    /// Creates a scan of a single server that begins at `now`.
    pub(super) fn single(now: Instant) -> Self {
        Self { single: true, ..Self::new(now) }
    }

    /// Returns the state that determines future steps.
    #[cfg(feature = "model")]
    pub(super) fn key(
        &self,
        age: impl Fn(Instant) -> core::time::Duration,
    ) -> impl core::hash::Hash {
        let started = age(self.started);
        (started, self.checks.clone(), self.single, self.resumed)
    }

    /// Returns the time that counts as the end of the scan if its last check ended at `now`.
    pub(super) fn ended(&self, now: Instant) -> Instant {
        if self.resumed { self.started } else { now }
    }

    /// Returns the server to check next; `None` if the scan has ended.
    pub(super) fn next(
        &self,
        topology: &TopologyDescription,
        max_servers: usize,
        rng: &mut Rng,
    ) -> Option<ServerId> {
        if self.single {
            return None;
        }
        let full = self.checks.len() >= max_servers;
        let candidates = topology.servers().iter().filter(|server| {
            self.is_candidate(server) && !(full && self.checks_of(&server.address) == 0)
        });
        let first = candidates.clone().map(|server| rank(server)).min()?;
        let mut best = candidates.filter(|server| rank(server) == first);
        // Draws a random number only if there are several candidates, so that a choice without
        // alternatives does not change later random choices.
        match best.clone().count() {
            1 => best.next(),
            ties => best.nth(rng.below(ties as u64) as usize),
        }
        .map(|server| server.id)
    }

    /// Counts a check of `address`.
    pub(super) fn count(&mut self, address: &ServerAddress) {
        let checks = self.checks.entry(address.clone()).or_default();
        *checks = checks.saturating_add(1);
    }

    /// Returns whether `address` may be retried after a network error.
    pub(super) fn may_repeat(&self, address: &ServerAddress) -> bool {
        self.checks_of(address) < MAX_CHECKS
    }

    /// Returns whether the scan may check `server`: "All servers with lastUpdateTime before
    /// scanStartTime" (SDAM: "Scanning order"), except those in their cooldown.
    ///
    /// Once checked in this scan, a server is not checked again, even if its reply was too old to
    /// change its description. The exception is a former primary that has since been reset to
    /// "infinity ago".
    fn is_candidate(&self, server: &ServerDescription) -> bool {
        let checks = self.checks_of(&server.address);
        match server.last_update_time {
            None => checks < MAX_CHECKS,
            Some(_) if checks > 0 => false,
            Some(_) if failed_in_use(server) => true,
            Some(updated) => updated < self.started && !is_cooling(server, updated, self.started),
        }
    }

    fn checks_of(&self, address: &ServerAddress) -> u8 {
        self.checks.get(address).copied().unwrap_or_default()
    }
}

/// Returns the rank of a candidate; the candidate with the smallest rank is checked first.
fn rank(server: &ServerDescription) -> (u8, Option<Instant>) {
    let class = match server.server_type {
        ServerType::RsPrimary => 0,
        ServerType::PossiblePrimary => 1,
        ServerType::Unknown | ServerType::RsGhost => 3,
        _ => 2,
    };
    // `None` sorts first, as required for "infinity ago".
    (class, server.last_update_time)
}

/// Returns whether the server is Unknown because of an operation's error rather than a failed
/// check.
///
/// Such an error occurred on an established connection, so it does not show whether a new
/// connection would fail. The cooldown, which exists to avoid the cost of connection failures,
/// therefore does not apply.
fn failed_in_use(server: &ServerDescription) -> bool {
    server
        .error
        .as_ref()
        .is_some_and(|error| matches!(error.stage(), Stage::Auth | Stage::Operation))
}

/// Returns whether the server is in its cooldown after a failed check (SDAM: "cooldownMS"). A
/// server remains in its cooldown even if other members name it as the primary.
fn is_cooling(server: &ServerDescription, updated: Instant, started: Instant) -> bool {
    !server.server_type.is_available() && updated + COOLDOWN > started
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(server_type: ServerType, updated: Option<u64>) -> ServerDescription {
        let address = ServerAddress::new("a", 27017);
        let mut server = ServerDescription::unknown(ServerId::from_u64(1), address);
        server.server_type = server_type;
        server.last_update_time = updated.map(Instant::from_millis);
        server
    }

    #[test]
    fn candidates_are_checked_by_type_and_then_by_age() {
        let ranked = [
            server(ServerType::RsPrimary, Some(9)),
            server(ServerType::PossiblePrimary, Some(9)),
            server(ServerType::RsSecondary, None),
            server(ServerType::RsArbiter, Some(1)),
            server(ServerType::Mongos, Some(9)),
            server(ServerType::Unknown, None),
            server(ServerType::RsGhost, Some(1)),
            server(ServerType::Unknown, Some(9)),
        ];
        assert!(ranked.is_sorted_by(|one, next| rank(one) < rank(next)));
    }

    #[test]
    fn an_address_is_checked_twice_at_the_most() {
        let never = server(ServerType::Unknown, None);
        let mut scan = Scan::new(Instant::EPOCH);
        let allowed = [(); 4].map(|()| {
            let allowed = (scan.may_repeat(&never.address), scan.is_candidate(&never));
            scan.count(&never.address);
            allowed
        });
        assert_eq!(allowed, [(true, true), (true, true), (false, false), (false, false)]);
    }
}
