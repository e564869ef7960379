use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use sdam_core::{
    event::{Event, EventKind},
    ids::ServerId,
    time::Instant,
};
use sdam_events::facts::{Fact, Facts};

use super::{Band, Change, Lane, Row, State, Timeline};
use crate::report::row::{Kind, Subject, Words};

/// Builds a timeline from consecutive events.
#[derive(Default)]
pub(super) struct Builder {
    timeline: Timeline,
    facts: Facts,
    lanes: HashMap<String, usize>,
    ids: HashMap<ServerId, usize>,
    /// The lanes with a heartbeat after which no round-trip time has become known yet.
    untimed: HashSet<usize>,
}

impl Builder {
    pub(super) fn new(start: Instant) -> Self {
        Self { timeline: Timeline { start, ..Timeline::default() }, ..Self::default() }
    }

    /// Adds the event on line `number` of the recording.
    pub(super) fn observe(&mut self, event: &Event, number: u64) {
        let at = self.timeline.offset(event.at);
        match &event.kind {
            EventKind::ServerOpening { server, address } => {
                let lane = self.lane(address.as_str());
                self.ids.insert(*server, lane);
                self.enter(lane, at, State::Undiscovered, "Unknown");
            }
            EventKind::ServerClosed { address, .. } => {
                let lane = self.lane(address.as_str());
                self.enter(lane, at, State::Absent, "");
            }
            EventKind::ServerDescriptionChanged { new, .. } => {
                let lane = self.lane(new.address.as_str());
                self.enter(lane, at, State::of(new), new.server_type.as_str());
                if let Some(error) = &new.error {
                    self.timeline.lanes[lane].error = Some(format!("{error:#}"));
                }
            }
            EventKind::RttMeasured { address, rtt, .. } => {
                self.measured(address.as_str(), nanos(rtt.average));
            }
            _ => {}
        }
        self.row(event, at, number);
        self.follow(event, at);
    }

    /// Returns the index of the lane of `address`; creates the lane at the server's first event.
    fn lane(&mut self, address: &str) -> usize {
        if let Some(lane) = self.lanes.get(address) {
            return *lane;
        }
        let lane = self.timeline.lanes.len();
        self.lanes.insert(address.to_owned(), lane);
        self.timeline.lanes.push(Lane { address: address.to_owned(), ..Lane::default() });
        lane
    }

    fn enter(&mut self, lane: usize, from: u64, state: State, name: &str) {
        let lane = &mut self.timeline.lanes[lane];
        if state == State::Lost && lane.bands.last().is_none_or(|it| it.state != State::Lost) {
            lane.losses += 1;
        }
        push(&mut lane.bands, from, state, name.to_owned());
    }

    /// Stores the round-trip time that became known after the last heartbeat of the server at
    /// `address`.
    fn measured(&mut self, address: &str, rtt: u64) {
        let Some(lane) = self.lanes.get(address) else {
            return;
        };
        if self.untimed.remove(lane) {
            self.timeline.lanes[*lane].rtts.push(rtt);
        }
    }

    fn row(&mut self, event: &Event, at: u64, number: u64) {
        let Some(words) = Words::of(event) else {
            return;
        };
        let lane = match words.subject {
            Subject::Set => None,
            Subject::Address(address) => self.lanes.get(address).copied(),
            Subject::Id(id) => self.ids.get(&id).copied(),
        };
        self.timeline.events += 1;
        if let Some(index) = lane {
            let lane = &mut self.timeline.lanes[index];
            match words.kind {
                Kind::Heartbeat => {
                    lane.succeeded += 1;
                    self.untimed.insert(index);
                }
                Kind::HeartbeatFailed => lane.failed += 1,
                Kind::PoolCleared => lane.clears += 1,
                _ => {}
            }
        }
        if words.kind != Kind::Heartbeat {
            self.timeline.rows.push(Row {
                at,
                line: number,
                kind: words.kind,
                lane,
                text: words.text.into_owned(),
                time: words.time.map(nanos),
            });
        }
    }

    /// Tracks the primary or, if the deployment is not a replica set, the availability of writes.
    fn follow(&mut self, event: &Event, at: u64) {
        let changes = &mut self.timeline.changes;
        for fact in self.facts.observe(event) {
            match fact {
                Fact::OutageStarted(outage) => changes.push(Change::new(outage)),
                Fact::FailoverEnded(failover) | Fact::FailoverExplained(failover) => {
                    let is_same = |change: &Change| match &change.end {
                        None => true,
                        Some(end) => end.writable_again == failover.writable_again,
                    };
                    if !changes.last().is_some_and(is_same) {
                        changes.push(Change::new(failover.outage.clone()));
                    }
                    if let Some(change) = changes.last_mut() {
                        change.outage = failover.outage.clone();
                        change.end = Some(failover);
                    }
                }
                _ => {}
            }
        }
        match &event.kind {
            EventKind::TopologyDescriptionChanged { new, .. } => {
                self.timeline.is_replica_set |= new.topology_type().is_replica_set();
                let writable = self.facts.is_writable();
                if writable {
                    self.timeline.discovered.get_or_insert(event.at);
                }
                let state = match self.timeline.discovered {
                    _ if writable => State::Writable,
                    None => State::Undiscovered,
                    Some(_) => State::Lost,
                };
                let name = match new.primary() {
                    Some(primary) => primary.address.to_string(),
                    None if self.timeline.is_replica_set => "none".to_owned(),
                    None => new.topology_type().to_string(),
                };
                push(&mut self.timeline.set, at, state, name);
            }
            EventKind::PoolCleared { address, .. } => {
                if let Some(change) = self.timeline.changes.last_mut()
                    && change.end.is_none()
                    && change.outage.lost.as_ref() == Some(address)
                {
                    change.cleared.get_or_insert(event.at);
                }
            }
            EventKind::ServerSelectionSucceeded { address, .. } => {
                if let Some(change) = self.timeline.changes.last_mut()
                    && let Some(end) = &change.end
                    && end.new.as_ref().is_none_or(|new| new == address)
                {
                    change.selected.get_or_insert(event.at);
                }
            }
            _ => {}
        }
    }

    /// Completes the timeline.
    pub(super) fn finish(mut self, end: Instant) -> Timeline {
        self.timeline.span = self.timeline.offset(end);
        let span = self.timeline.span;
        for lane in &mut self.timeline.lanes {
            let ends = lane.bands.iter().skip(1).map(|band| band.from);
            let ends: Vec<u64> = ends.chain([span]).collect();
            let lost = lane.bands.iter().zip(ends);
            let lost = lost.filter(|(band, _)| band.state == State::Lost);
            lane.lost = lost.map(|(band, end)| end.saturating_sub(band.from)).sum();
        }
        self.timeline
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Adds a band, unless the last one has the same state and name.
fn push(bands: &mut Vec<Band>, from: u64, state: State, name: String) {
    if bands.last().is_none_or(|last| last.state != state || last.name != name) {
        bands.push(Band { from, state, name });
    }
}
