//! Converts a recording into a timeline with one lane for each server. The page draws the timeline,
//! and the verdict evaluates it.
//!
//! Times are nanoseconds since the start of the recording. The timeline ends when the client stops
//! monitoring, because a topology that becomes unknown afterwards is not a problem.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use sdam_core::{
    deployment::Input,
    event::{Event, EventKind},
    ids::ServerId,
    server::{ServerDescription, ServerType},
    time::Instant,
};
use sdam_events::facts::{Fact, Facts, Failover, Outage};

use super::events::{Kind, Subject, Words};
use crate::recording::Recording;

/// The shortest gap between records, in nanoseconds: a pause up to this length is never shown as a
/// gap. A longer pause is, unless such pauses are usual in the recording.
const GAP: u64 = 30_000_000_000;

/// The state of a server or of the topology, from the best to the worst, with its name on the
/// page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[derive(strum::Display, strum::VariantArray)]
pub(super) enum BandState {
    /// The server is not a member.
    #[strum(serialize = "not monitored")]
    Absent,
    /// The server accepts writes: it is a primary, a router or a standalone server.
    #[strum(serialize = "primary")]
    Writable,
    #[strum(serialize = "secondary")]
    Secondary,
    /// The server is reachable but not usable by operations, such as an arbiter or a starting
    /// member.
    #[strum(serialize = "other")]
    Other,
    /// The server has not been reached yet.
    #[strum(serialize = "not reached yet")]
    Undiscovered,
    /// The server is no longer available, or was never reached because of an error. A topology
    /// is lost when it is no longer writable.
    #[strum(serialize = "unknown")]
    Lost,
}

impl BandState {
    fn of(server: &ServerDescription) -> Self {
        match server.server_type {
            ServerType::RsSecondary => Self::Secondary,
            available if available.is_data_bearing() => Self::Writable,
            ServerType::Unknown | ServerType::PossiblePrimary => match &server.error {
                Some(_) => Self::Lost,
                None => Self::Undiscovered,
            },
            _ => Self::Other,
        }
    }
}

/// A period in one state, which lasts from the time `from` until the next band.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) from: u64,
    pub(super) state: BandState,
    /// The type in the specification's spelling; for a replica set, the primary.
    pub(super) name: String,
}

/// The history of a server.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) address: String,
    pub(super) bands: Vec<Band>,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) clears: u64,
    pub(super) losses: u64,
    /// The total time during which the server was lost.
    pub(super) lost: u64,
    pub(super) error: Option<String>,
    /// The average round-trip time after each check.
    pub(super) rtts: Vec<u64>,
}

/// An event that the page lists.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) at: u64,
    /// The line number in the recording.
    pub(super) line: u64,
    pub(super) kind: Kind,
    /// The index of the server's lane; `None` for the topology.
    pub(super) lane: Option<usize>,
    pub(super) text: String,
    /// The duration of the heartbeat or the selection.
    pub(super) time: Option<u64>,
}

/// A period without a writable server, or a change of primary without such a period.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) outage: Outage,
    /// The return of a writable server; `None` if the recording ends before that.
    pub(super) end: Option<Failover>,
    /// The times of the first pool clear and of the first successful selection after the loss.
    pub(super) cleared: Option<Instant>,
    pub(super) selected: Option<Instant>,
}

/// Everything that the page shows.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) start: Instant,
    pub(super) span: u64,
    pub(super) lanes: Vec<Lane>,
    pub(super) set: Vec<Band>,
    /// True if the deployment is a replica set, in which writes need a primary.
    pub(super) is_replica_set: bool,
    /// The events that the page lists: all events except answered heartbeats.
    pub(super) rows: Vec<Row>,
    /// The number of all events.
    pub(super) events: u64,
    pub(super) changes: Vec<Change>,
    /// The time when a writable server was first known.
    pub(super) discovered: Option<Instant>,
    /// Unusually long pauses in the recording.
    pub(super) gaps: Vec<(u64, u64)>,
}

impl Timeline {
    pub(super) fn of(recording: &Recording) -> Self {
        let mut builder = Builder::new(recording.start());
        let mut last = recording.start();
        let mut pauses = Vec::new();
        for (event, number) in recording.events.iter().zip(&recording.lines) {
            let is_end = matches!(&event.kind, EventKind::Input(own) if own.input == Input::Close);
            pauses.push((last, event.at));
            last = event.at;
            if is_end {
                break;
            }
            builder.observe(event, *number);
        }
        let mut timeline = builder.finish(last);
        timeline.gaps = timeline.unusual(&pauses);
        timeline
    }

    /// Returns the nanoseconds from the start to `at`.
    pub(super) fn offset(&self, at: Instant) -> u64 {
        at.as_nanos().saturating_sub(self.start.as_nanos())
    }

    /// Returns the pauses that are unusually long for this recording.
    fn unusual(&self, pauses: &[(Instant, Instant)]) -> Vec<(u64, u64)> {
        let length = |(from, to): &(Instant, Instant)| nanos(to.since(*from));
        let mut lengths: Vec<u64> = pauses.iter().map(length).collect();
        lengths.sort_unstable();
        let usual = lengths.get(lengths.len() * 9 / 10).copied().unwrap_or(0);
        let limit = GAP.max(usual.saturating_mul(3));
        let long = pauses.iter().filter(|pause| length(pause) > limit);
        long.map(|(from, to)| (self.offset(*from), self.offset(*to))).collect()
    }

    /// Returns the end of the band `bands[index]`.
    pub(super) fn end_of(&self, bands: &[Band], index: usize) -> u64 {
        bands.get(index + 1).map_or(self.span, |next| next.from)
    }
}

/// Builds a timeline from consecutive events.
#[derive(Default)]
struct Builder {
    timeline: Timeline,
    facts: Facts,
    lanes: HashMap<String, usize>,
    ids: HashMap<ServerId, usize>,
    /// The lanes with a heartbeat after which no round-trip time has become known yet.
    untimed: HashSet<usize>,
}

impl Builder {
    fn new(start: Instant) -> Self {
        Self { timeline: Timeline { start, ..Timeline::default() }, ..Self::default() }
    }

    /// Adds the event on line `number` of the recording.
    fn observe(&mut self, event: &Event, number: u64) {
        let at = self.timeline.offset(event.at);
        match &event.kind {
            EventKind::ServerOpening { server, address } => {
                let lane = self.lane(address.as_str());
                self.ids.insert(*server, lane);
                self.enter(lane, at, BandState::Undiscovered, "Unknown");
            }
            EventKind::ServerClosed { address, .. } => {
                let lane = self.lane(address.as_str());
                self.enter(lane, at, BandState::Absent, "");
            }
            EventKind::ServerDescriptionChanged { new, .. } => {
                let lane = self.lane(new.address.as_str());
                self.enter(lane, at, BandState::of(new), new.server_type.as_str());
                if let Some(error) = &new.error {
                    self.timeline.lanes[lane].error = Some(format!("{error:#}"));
                }
            }
            EventKind::RttMeasured { address, rtt, .. } => {
                // The time became known after the last heartbeat of the server.
                if let Some(lane) = self.lanes.get(address.as_str())
                    && self.untimed.remove(lane)
                {
                    self.timeline.lanes[*lane].rtts.push(nanos(rtt.average));
                }
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

    fn enter(&mut self, lane: usize, from: u64, state: BandState, name: &str) {
        let lane = &mut self.timeline.lanes[lane];
        if state == BandState::Lost
            && lane.bands.last().is_none_or(|it| it.state != BandState::Lost)
        {
            lane.losses += 1;
        }
        push(&mut lane.bands, from, state, name.to_owned());
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
                    _ if writable => BandState::Writable,
                    None => BandState::Undiscovered,
                    Some(_) => BandState::Lost,
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
    fn finish(mut self, end: Instant) -> Timeline {
        self.timeline.span = self.timeline.offset(end);
        let span = self.timeline.span;
        for lane in &mut self.timeline.lanes {
            let ends = lane.bands.iter().skip(1).map(|band| band.from);
            let ends: Vec<u64> = ends.chain([span]).collect();
            let lost = lane.bands.iter().zip(ends);
            let lost = lost.filter(|(band, _)| band.state == BandState::Lost);
            lane.lost = lost.map(|(band, end)| end.saturating_sub(band.from)).sum();
        }
        self.timeline
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Adds a band, unless the last one has the same state and name.
fn push(bands: &mut Vec<Band>, from: u64, state: BandState, name: String) {
    if bands.last().is_none_or(|last| last.state != state || last.name != name) {
        bands.push(Band { from, state, name });
    }
}
