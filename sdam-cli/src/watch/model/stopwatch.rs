//! The stopwatch for failovers: the time without a primary, and the duration of each step.

use std::collections::BTreeSet;

use sdam_core::{address::ServerAddress, time::Instant};
use sdam_events::facts::{Failover, Outage};

/// The steps of one failover, or of an outage of a deployment without primaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the failover, counted from 1.
    pub(crate) number: u64,
    /// The outage, which begins with the loss of a writable server.
    pub(crate) outage: Outage,
    /// The time when the pool of the lost server was cleared.
    pub(crate) pool_cleared: Option<Instant>,
    /// The time at which all other servers had been checked.
    pub(crate) all_checked: Option<Instant>,
    /// The failover that ended the outage.
    pub(crate) end: Option<Failover>,
    /// The servers for which no check has been completed since the loss.
    unchecked: BTreeSet<ServerAddress>,
}

impl Run {
    fn conclude(&mut self, failover: &Failover) {
        self.outage = failover.outage.clone();
        self.end = Some(failover.clone());
    }
}

/// The current outage and the last failover.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopwatch {
    pub(crate) current: Option<Run>,
    /// The last completed failover.
    pub(crate) last: Option<Run>,
    count: u64,
}

impl Stopwatch {
    /// Starts a run at the beginning of an outage; `others` are the servers that were not lost.
    pub(super) fn start(&mut self, outage: &Outage, others: BTreeSet<ServerAddress>) {
        self.current = Some(self.run(outage, others));
    }

    fn run(&mut self, outage: &Outage, unchecked: BTreeSet<ServerAddress>) -> Run {
        self.count += 1;
        Run {
            number: self.count,
            outage: outage.clone(),
            pool_cleared: None,
            all_checked: None,
            end: None,
            unchecked,
        }
    }

    /// Handles the end of a check of `server`.
    pub(super) fn checked(&mut self, at: Instant, server: &ServerAddress) {
        if let Some(run) = &mut self.current
            && run.unchecked.remove(server)
            && run.unchecked.is_empty()
        {
            run.all_checked = Some(at);
        }
    }

    /// Handles the removal of a server from the topology.
    pub(super) fn left(&mut self, server: &ServerAddress) {
        if let Some(run) = &mut self.current {
            run.unchecked.remove(server);
        }
    }

    /// Handles the clearing of the pool of `server`.
    pub(super) fn cleared(&mut self, at: Instant, server: &ServerAddress) {
        if let Some(run) = &mut self.current
            && run.outage.lost.as_ref().is_none_or(|lost| lost == server)
        {
            run.pool_cleared.get_or_insert(at);
        }
    }

    /// Handles the return of a writable server.
    pub(super) fn end(&mut self, failover: &Failover) {
        // If no outage was in progress, one primary has directly replaced another.
        let mut run = match self.current.take() {
            Some(run) => run,
            None => self.run(&failover.outage, BTreeSet::new()),
        };
        run.conclude(failover);
        self.last = Some(run);
    }

    /// Updates the last failover when its cause becomes known.
    pub(super) fn explain(&mut self, failover: &Failover) {
        if let Some(run) = &mut self.last {
            run.conclude(failover);
        }
    }
}
