//! The events of a selection in single-threaded mode.

use std::{sync::Arc, time::Duration};

use sdam_core::{time::Instant, topology::TopologyDescription};
use sdam_events::queue::EventQueue;
use sdam_select::criteria::Criteria;
use sdam_transport::clock::Clock;

use super::ScanTopology;
use crate::{
    pending::Pending,
    report::{self, Scene},
};

pub(super) type Report = report::Report<Onlooker>;

/// The scene of a selection that borrows the topology mutably, for events on drop.
pub(super) struct Onlooker {
    events: Arc<EventQueue>,
    /// Not shared: the topology cannot be closed while a selection borrows it.
    pending: Pending,
    clock: Arc<dyn Clock>,
    /// The last known topology description.
    description: Arc<TopologyDescription>,
    /// The deadline of the selection; `None` with `serverSelectionTryOnce`.
    deadline: Option<Instant>,
    waited: bool,
}

impl Scene for Onlooker {
    fn events(&self) -> &EventQueue {
        &self.events
    }

    fn pending(&self) -> &Pending {
        &self.pending
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(&self.description)
    }
}

/// Starts the report of a selection that begins now.
pub(super) fn begin(topology: &ScanTopology, criteria: &Criteria, timeout: Duration) -> Report {
    let try_once = topology.options.server_selection_try_once.unwrap_or(true);
    let onlooker = Onlooker {
        events: Arc::clone(&topology.events),
        pending: Pending::default(),
        clock: Arc::clone(&topology.io.clock),
        description: Arc::clone(topology.description()),
        deadline: (!try_once).then(|| topology.now() + timeout),
        waited: false,
    };
    Report::begin(onlooker, &topology.settings, criteria)
}

impl Report {
    /// Keeps the current description, for events after the selection is dropped.
    pub(super) fn look(&mut self, description: &Arc<TopologyDescription>) {
        if !Arc::ptr_eq(&self.scene.description, description) {
            self.scene.description = Arc::clone(description);
        }
    }

    /// Publishes that the selection is waiting, at most once (K-8).
    pub(super) fn go_on(&mut self, description: &Arc<TopologyDescription>) {
        if std::mem::replace(&mut self.scene.waited, true) {
            return;
        }
        self.look(description);
        let now = self.scene.now();
        let remaining = self.scene.deadline.map(|deadline| deadline.since(now));
        self.waiting(remaining);
    }
}
