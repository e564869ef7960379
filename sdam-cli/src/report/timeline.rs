//! Turns a recording into one lane per server over time, for the page to draw and for the verdict
//! to evaluate.
//!
//! Times are nanoseconds since the start of the recording. The timeline ends when the client stops
//! monitoring, because a topology that becomes unknown afterwards is not a problem.

use sdam_core::{
    deployment::Input,
    event::EventKind,
    server::{ServerDescription, ServerType},
    time::Instant,
};
use sdam_events::facts::{Failover, Outage};

use self::builder::Builder;
use super::row::Kind;
use crate::recording::Recording;

mod builder;

/// The length up to which a pause between records never counts as a gap. A longer pause is a gap,
/// unless such pauses are usual in the recording.
const GAP: u64 = 30_000_000_000;

/// The state of a server or of the topology, from the best to the worst, with its name on the
/// page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
pub(super) enum State {
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

impl State {
    /// Every value, in declaration order.
    pub(super) const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }
}

impl State {
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
    pub(super) state: State,
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
    /// The events that the page lists, which are all but answered heartbeats.
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
        timeline.gaps = gaps(&pauses, timeline.start);
        timeline
    }

    /// Returns the nanoseconds from the start to `at`.
    pub(super) fn offset(&self, at: Instant) -> u64 {
        offset(self.start, at)
    }

    /// Returns the end of the band `bands[index]`.
    pub(super) fn end_of(&self, bands: &[Band], index: usize) -> u64 {
        bands.get(index + 1).map_or(self.span, |next| next.from)
    }
}

fn offset(start: Instant, at: Instant) -> u64 {
    at.as_nanos().saturating_sub(start.as_nanos())
}

/// Returns the pauses that are unusually long for this recording.
fn gaps(pauses: &[(Instant, Instant)], start: Instant) -> Vec<(u64, u64)> {
    let length = |(from, to): &(Instant, Instant)| to.as_nanos().saturating_sub(from.as_nanos());
    let mut lengths: Vec<u64> = pauses.iter().map(length).collect();
    lengths.sort_unstable();
    let usual = lengths.get(lengths.len() * 9 / 10).copied().unwrap_or(0);
    let limit = GAP.max(usual.saturating_mul(3));
    let long = pauses.iter().filter(|pause| length(pause) > limit);
    long.map(|(from, to)| (offset(start, *from), offset(start, *to))).collect()
}
