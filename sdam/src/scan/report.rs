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

/// Whoever is left when the selection, which has the topology to itself, is dropped.
pub(super) struct Onlooker {
    events: Arc<EventQueue>,
    /// Of its own: the topology cannot be closed while a selection has it.
    pending: Pending,
    clock: Arc<dyn Clock>,
    /// What was known last.
    description: Arc<TopologyDescription>,
    /// When the selection gives up; `None` if it is not a matter of time.
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

/// The report of a selection that begins now.
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
    /// Remembers what is known, in case nothing is heard any more.
    pub(super) fn look(&mut self, description: &Arc<TopologyDescription>) {
        if !Arc::ptr_eq(&self.scene.description, description) {
            self.scene.description = Arc::clone(description);
        }
    }

    /// Says that the selection goes on; once (K-8).
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
