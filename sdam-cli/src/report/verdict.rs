//! The verdict on a recording in one sentence, and the phases of failovers.

use std::time::Duration;

use sdam_events::facts::{Bounds, Outage};

use super::timeline::{Band, BandState, Change, Timeline};
use crate::time::{cause, range, short};

/// The severity of a verdict, with its CSS class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Severity {
    Good,
    /// Servers were lost, but writes were always possible.
    Warning,
    /// Writes were not possible for some time.
    Bad,
}

/// The verdict on a recording.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) severity: Severity,
    /// A summary in a few words.
    pub(super) headline: String,
    /// The explanation, in one or two sentences.
    pub(super) details: String,
}

/// A phase of a failover.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) name: &'static str,
    pub(super) meaning: String,
    pub(super) from: u64,
    pub(super) time: u64,
    /// The CSS class that sets the colour.
    pub(super) class: &'static str,
}

impl Verdict {
    pub(super) fn of(timeline: &Timeline, clock: &impl Fn(u64) -> String) -> Self {
        let verdict =
            |severity, headline: String, details: String| Self { severity, headline, details };
        let wanted = wanted(timeline);
        if timeline.events == 0 {
            let details = "There is nothing to show.".to_owned();
            return verdict(Severity::Warning, "The recording has no events".into(), details);
        }
        if timeline.discovered.is_none() {
            let headline = format!("No {wanted} was found in {}", nanos(timeline.span));
            return verdict(Severity::Bad, headline, never_found(timeline));
        }
        let gaps: Vec<&Change> = timeline.changes.iter().filter(|it| it.is_gap()).collect();
        let length = |change: &Change| range(change.without(timeline), short);
        let details = gaps.iter().max_by_key(|change| change.without(timeline).at_most);
        match (&*gaps, details) {
            ([], _) | (_, None) => without_gap(timeline, wanted, clock),
            ([change], Some(_)) => {
                let (time, silence) = (length(change), change.silence());
                let headline = match change.end {
                    Some(_) if silence.is_zero() => {
                        format!("No {wanted} for {time}: writes had to wait")
                    }
                    Some(_) => format!("No {wanted} for {time}: the loss was noticed late"),
                    None => format!("No {wanted} for {time}, until the recording ends"),
                };
                verdict(Severity::Bad, headline, story(change, timeline, clock))
            }
            (gaps, Some(longest)) => {
                let is_silent = gaps.iter().any(|change| !change.silence().is_zero());
                let headline = format!(
                    "No {wanted} for {} in total, in {} periods: {}",
                    range(without(timeline), short),
                    gaps.len(),
                    if is_silent { "losses were noticed late" } else { "writes had to wait" }
                );
                let story = story(longest, timeline, clock);
                let details = format!("The longest lasted {}. {story}", length(longest));
                verdict(Severity::Bad, headline, details)
            }
        }
    }
}

/// Returns the kind of server that writes require.
pub(super) fn wanted(timeline: &Timeline) -> &'static str {
    if timeline.is_replica_set { "primary" } else { "writable server" }
}

/// Returns the total time without a writable server.
pub(super) fn without(timeline: &Timeline) -> Bounds {
    let times = timeline.changes.iter().map(|change| change.without(timeline));
    times.fold(Bounds::default(), |sum, time| sum + time)
}

impl Change {
    /// Creates a change that begins with `outage`.
    pub(super) fn new(outage: Outage) -> Self {
        Self { outage, end: None, cleared: None, selected: None }
    }

    /// Returns whether there was or may have been a period without a writable server.
    pub(super) fn is_gap(&self) -> bool {
        self.end.as_ref().is_none_or(|end| !end.without_primary().at_most.is_zero())
    }

    /// Returns the maximum time between the loss and its detection.
    fn silence(&self) -> Duration {
        self.outage.noticed.since(self.outage.earliest())
    }

    /// Returns how long there was no writable server.
    pub(super) fn without(&self, timeline: &Timeline) -> Bounds {
        self.outage.without_primary(timeline.start + Duration::from_nanos(self.over(timeline)))
    }

    /// Returns the time at which a writable server was known again, or the end of the recording if
    /// there was none.
    pub(super) fn over(&self, timeline: &Timeline) -> u64 {
        let end = self.end.as_ref();
        end.map_or(timeline.span, |end| timeline.offset(end.writable_again))
    }

    /// Returns the phases of an outage, which begins when the old primary was last known to be
    /// writable.
    pub(super) fn splits(&self, timeline: &Timeline) -> Vec<Split> {
        let at = |instant| timeline.offset(instant);
        let (earliest, noticed) = (at(self.outage.earliest()), at(self.outage.noticed));
        let over = self.over(timeline);
        let mut splits = Vec::new();
        let mut split = |name, meaning: String, from: u64, to: u64, class| {
            if to > from {
                splits.push(Split { name, meaning, from, time: to - from, class });
            }
        };
        let meaning = "at most, from the last answer as primary until the client noticed the loss: \
                       operations in this time may have failed";
        split("detection", meaning.into(), earliest, noticed, "detection");
        let named = self.outage.successor_named.map(at);
        match (named.filter(|named| *named <= over), &self.end) {
            (Some(named), _) => {
                let meaning = "until another member named the new primary";
                split("election", meaning.into(), noticed, named, "election");
                let meaning = "until the new primary itself answered the client";
                split("discovery", meaning.into(), named, over, "discovery");
            }
            (None, Some(_)) => {
                let meaning = "until the new primary answered the client; \
                               no other member named it before";
                split("election", meaning.into(), noticed, over, "election");
            }
            (None, None) => {
                let meaning = "no new one was found until the recording ends";
                split("no successor", meaning.into(), noticed, over, "election");
            }
        }
        if let Some(selected) = self.selected.map(at) {
            let meaning = "until an operation selected the new primary";
            split("first operation", meaning.into(), over, selected, "operation");
        }
        splits
    }
}

/// Describes one outage in two sentences.
fn story(change: &Change, timeline: &Timeline, clock: &impl Fn(u64) -> String) -> String {
    let noticed = clock(timeline.offset(change.outage.noticed));
    let lost = match &change.outage.lost {
        Some(lost) => format!("the primary {lost}"),
        None => "the last writable server".to_owned(),
    };
    let cause = cause(&change.outage, short);
    let over = clock(change.over(timeline));
    let new = change.end.as_ref().map(|end| &end.new);
    let end = match new {
        Some(Some(new)) if Some(new) == change.outage.lost.as_ref() => {
            format!("At {over} the same server was primary again.")
        }
        Some(Some(new)) => format!("At {over} {new} was the new primary."),
        Some(None) => format!("At {over} a server was writable again."),
        None => {
            let wanted = wanted(timeline);
            format!("No {wanted} was known when the recording ended at {over}.")
        }
    };
    format!("At {noticed} the client lost {lost}: {cause}. {end}")
}

fn without_gap(
    timeline: &Timeline,
    wanted: &'static str,
    clock: &impl Fn(u64) -> String,
) -> Verdict {
    let since = timeline.discovered.map(|at| timeline.offset(at));
    let since = since.unwrap_or_default();
    let always = format!(
        "A {wanted} was known for {}, from its discovery to the end of the recording.",
        nanos(timeline.span.saturating_sub(since))
    );
    if let Some(change) = timeline.changes.last() {
        let headline = "The primary changed, and one was known at all times".to_owned();
        let (severity, details) = (Severity::Warning, story(change, timeline, clock));
        return Verdict { severity, headline, details };
    }
    let mut lost: Vec<_> = timeline.lanes.iter().filter(|it| it.losses > 0).collect();
    lost.sort_by_key(|lane| std::cmp::Reverse(lane.lost));
    let (severity, headline) = match lost.first() {
        None => {
            (Severity::Good, format!("A {wanted} was known at all times, and no server was lost"))
        }
        Some(lane) => {
            let others = match lost.len() - 1 {
                0 => String::new(),
                others => format!(" (and {others} more)"),
            };
            let time = nanos(lane.lost);
            let headline = format!("{}{others} was unreachable for {time}", lane.address);
            (Severity::Warning, headline)
        }
    };
    Verdict { severity, headline, details: always }
}

/// Explains why no primary was found.
fn never_found(timeline: &Timeline) -> String {
    let mut states = timeline.lanes.iter().filter_map(|lane| {
        let band: &Band = lane.bands.last()?;
        let error = lane.error.as_deref().filter(|_| band.state == BandState::Lost);
        let state = error.unwrap_or(&band.name);
        (band.state != BandState::Absent).then(|| format!("{}: {state}", lane.address))
    });
    let first: Vec<String> = states.by_ref().take(5).collect();
    let more = match states.count() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("At the end: {}{more}.", first.join("; "))
}

pub(super) fn nanos(nanos: u64) -> String {
    short(Duration::from_nanos(nanos))
}
