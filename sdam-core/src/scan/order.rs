//! Which server is checked next (SDAM: "Scanning order").

use alloc::vec::Vec;

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

/// How often one scan checks an address: once, and once more if the connection broke or the server
/// was put back to "never checked" by what others said.
const MAX_CHECKS: u8 = 2;

/// A scan that is under way.
#[derive(Debug)]
pub(super) struct Scan {
    started: Instant,
    /// How often each address was checked, sorted.
    ///
    /// By address and not by incarnation: servers that make each other leave and join again would
    /// otherwise keep a scan busy for ever.
    checks: Vec<(ServerAddress, u8)>,
    /// Whether it is the check of one server and no scan.
    single: bool,
    /// Whether whoever began it has given up, so that any time may have passed in between.
    resumed: bool,
}

impl Scan {
    /// A scan of all servers that begins at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            checks: Vec::new(),
            single: false,
            resumed: false,
        }
    }

    /// The check of one server at `now`.
    pub(super) fn single(now: Instant) -> Self {
        Self {
            single: true,
            ..Self::new(now)
        }
    }

    pub(super) fn is_single(&self) -> bool {
        self.single
    }

    /// Somebody else goes on with the scan.
    pub(super) fn resume(&mut self) {
        self.resumed = true;
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// When a scan whose last check ended at `now` counts as ended.
    pub(super) fn ended(&self, now: Instant) -> Instant {
        if self.resumed { self.started } else { now }
    }

    /// The server to check next; `None` if the scan has ended.
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
        // Drawing only where there is a choice keeps the other draws of a run in place.
        match best.clone().count() {
            1 => best.next(),
            ties => best.nth(rng.below(ties as u64) as usize),
        }
        .map(|server| server.id)
    }

    /// Counts a check of `address`.
    pub(super) fn count(&mut self, address: &ServerAddress) {
        match self.position(address) {
            Ok(index) => {
                if let Some((_, checks)) = self.checks.get_mut(index) {
                    *checks = checks.saturating_add(1);
                }
            }
            Err(index) => self.checks.insert(index, (address.clone(), 1)),
        }
    }

    /// Whether `address` may be checked once more after a network error.
    pub(super) fn may_repeat(&self, address: &ServerAddress) -> bool {
        self.checks_of(address) < MAX_CHECKS
    }

    /// "All servers with lastUpdateTime before scanStartTime", without those in their cooldown.
    ///
    /// What was checked counts as such even if its reply was too old to change anything. Only a
    /// server that has been reset to "infinity ago" since (a former primary) is visited again.
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
        self.position(address)
            .ok()
            .and_then(|index| self.checks.get(index))
            .map_or(0, |(_, checks)| *checks)
    }

    fn position(&self, address: &ServerAddress) -> Result<usize, usize> {
        self.checks.binary_search_by(|(own, _)| own.cmp(address))
    }
}

/// The order of candidates; the smallest is checked first.
fn rank(server: &ServerDescription) -> (u8, Option<Instant>) {
    let class = match server.server_type {
        ServerType::RsPrimary => 0,
        ServerType::PossiblePrimary => 1,
        ServerType::Unknown | ServerType::RsGhost => 3,
        _ => 2,
    };
    // `None` sorts first, as "infinity ago" has to.
    (class, server.last_update_time)
}

/// Whether the server is Unknown because of an operation and not because of a check.
///
/// Such an error came on a connection that had been open. It says nothing about whether a new one
/// can be had, which is what the cooldown saves time on, and it was no check.
fn failed_in_use(server: &ServerDescription) -> bool {
    server
        .error
        .as_ref()
        .is_some_and(|error| matches!(error.stage, Stage::Auth | Stage::Operation))
}

/// SDAM: "cooldownMS": a server that failed its last check is left alone for a while. One that
/// others take for the primary is as unreachable as it was before.
fn is_cooling(server: &ServerDescription, updated: Instant, started: Instant) -> bool {
    !server.server_type.is_available() && updated + COOLDOWN > started
}
