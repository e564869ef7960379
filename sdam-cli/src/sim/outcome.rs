//! The outcome of a simulation, in words and as JSON.

use std::{
    iter,
    time::{Duration, UNIX_EPOCH},
};

use sdam_core::{address::ServerAddress, time::Instant};
use sdam_events::facts::Outage;
use sdam_sim::action::ActionError;
use serde_json::{Value, json};

use super::{
    application::{Longest, Writes},
    observer::Seen,
};
use crate::{
    duration::short,
    failover,
    log::time_of_day,
    terminal::wrap,
    watch::{Access, model::Run},
};

/// The time of day at which simulations begin, 2024-01-01T00:00:00Z, in seconds since 1970.
pub(super) const BEGIN: Duration = Duration::from_secs(1_704_067_200);

/// A step of the scenario that was applied or refused.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) at: Instant,
    /// The file and line of the step.
    pub(super) place: String,
    pub(super) words: String,
    pub(super) error: Option<ActionError>,
    /// The actual primary after the step.
    pub(super) primary: Option<ServerAddress>,
}

/// The outcome of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) seed: u64,
    /// The time when the simulation ended.
    pub(super) end: Instant,
    pub(super) client: Seen,
    pub(super) steps: Vec<Taken>,
    /// The writes of the application, if there is one.
    pub(super) writes: Option<Writes>,
}

impl Outcome {
    /// Describes the refused steps, each with its file and line.
    pub(super) fn refusals(&self) -> impl Iterator<Item = String> {
        self.steps.iter().filter_map(|step| {
            let error = step.error?;
            Some(format!("{}: {}: {error}", step.place, step.words))
        })
    }

    /// Returns how long the client had no writable server after it had found the first one. If it
    /// found none, returns the whole duration.
    pub(super) fn without(&self) -> Duration {
        match self.client.found {
            Some(_) => self.client.runs.iter().map(|run| self.length(run)).sum(),
            None => self.end.since(Instant::EPOCH),
        }
    }

    /// Returns how long the client had no writable server in the outage `run`.
    fn length(&self, run: &Run) -> Duration {
        let begin = self.cause(run).map_or(run.outage.noticed, |step| step.at);
        run.end.as_ref().map_or(self.end, |end| end.writable_again).since(begin)
    }

    /// Returns the step that removed the writable server, from those between the last time at which
    /// the server was known to be writable and the time at which the loss was noticed. Prefers the
    /// first step after which another server, or none, is primary; otherwise, takes the last step.
    fn cause(&self, run: &Run) -> Option<&Taken> {
        let Outage { lost, last_writable, noticed, .. } = &run.outage;
        let window = *last_writable..=*noticed;
        let taken = self.steps.iter().filter(|step| step.error.is_none());
        let mut taken = taken.filter(|step| window.contains(&step.at));
        let is_end = |step: &&Taken| lost.is_some() && step.primary != *lost;
        taken.clone().find(is_end).or_else(|| taken.next_back())
    }

    /// Describes the outcome in one line; `wanted` is the kind of server that writes need.
    pub(super) fn line(&self, wanted: &str) -> String {
        let (seed, access) = (self.seed, self.client.access);
        let without = match (&*self.client.runs, self.client.found) {
            (_, None) => format!("no {wanted} was found"),
            ([], _) => format!("a {wanted} was known at all times"),
            ([_], _) => format!("no {wanted} for {}", short(self.without())),
            (runs, _) => {
                let total = short(self.without());
                format!("no {wanted} for {total} in {} periods", runs.len())
            }
        };
        let flaps = match self.client.flaps {
            1 => "1 flap".to_owned(),
            flaps => format!("{flaps} flaps"),
        };
        let mut line = format!("seed {seed}: {access} at the end; {without}; {flaps}");
        if let Some(writes) = &self.writes {
            let all = writes.succeeded + writes.failed;
            let longest = short(writes.longest.took);
            let failed = writes.failed;
            line = format!("{line}; {failed} of {all} writes failed, one took {longest}");
        }
        line
    }

    /// Describes the outcome in a few lines; `wanted` is the kind of server that writes need.
    pub(super) fn text(&self, wanted: &str) -> String {
        let mut points = Vec::new();
        if let Some(found) = self.client.found {
            let time = short(found.since(Instant::EPOCH));
            points.push(format!("the first {wanted} was found after {time}"));
        }
        for run in &self.client.runs {
            points.extend([self.loss(run, wanted), self.end_of(run, wanted)]);
        }
        points.extend(self.writes.iter().flat_map(tell));
        let points = points.iter().flat_map(|point| {
            let marks = iter::once("- ").chain(iter::repeat("  "));
            marks.zip(wrap(point, 2)).map(|(mark, part)| format!("{mark}{part}\n"))
        });
        let line = wrap(&self.line(wanted), 0).into_iter().map(|part| part + "\n");
        line.chain(points).collect()
    }

    /// Describes a loss: its time, the step that caused it, and when and why the client noticed it.
    fn loss(&self, run: &Run, wanted: &str) -> String {
        let Outage { lost, noticed, .. } = &run.outage;
        let lost = match lost {
            Some(lost) => format!("{lost} was lost"),
            None => format!("no {wanted} was left"),
        };
        let reason = failover::cause(&run.outage, short);
        match self.cause(run) {
            Some(step) => format!(
                "{}: {lost} by `{}`; noticed {} later: {reason}",
                time(step.at),
                step.words,
                short(noticed.since(step.at))
            ),
            None => format!("{}: {lost}: {reason}", time(*noticed)),
        }
    }

    /// Describes the end of the period without a writable server.
    fn end_of(&self, run: &Run, wanted: &str) -> String {
        let length = short(self.length(run));
        let Some(end) = &run.end else {
            let end = time(self.end);
            return format!("{end}: the end, without a {wanted} for {length}");
        };
        let new = match &end.new {
            Some(new) if Some(new) == run.outage.lost.as_ref() => {
                format!("{new} was primary again")
            }
            Some(new) => format!("{new} was the new primary"),
            None => "a server was writable again".to_owned(),
        };
        format!("{}: {new}, {length} after the loss", time(end.writable_again))
    }

    /// Returns the outcome as a JSON object. Times are in milliseconds since the start.
    pub(super) fn json(&self) -> Value {
        let outages = self.client.runs.iter().map(|run| {
            let (outage, end) = (&run.outage, run.end.as_ref());
            json!({
                "lost": outage.lost,
                "new": end.and_then(|end| end.new.as_ref()),
                "step": self.cause(run).map(|step| &step.words),
                "stepMs": self.cause(run).map(|step| millis(step.at)),
                "lastWritableMs": millis(outage.last_writable),
                "earliestMs": millis(outage.earliest()),
                "noticedMs": millis(outage.noticed),
                "writableAgainMs": end.map(|end| millis(end.writable_again)),
                "cause": failover::cause(outage, short),
            })
        });
        json!({
            "v": 1,
            "seed": self.seed,
            "access": match self.client.access {
                Access::Writable => "writable",
                Access::ReadableOnly => "readable",
                Access::Neither => "neither",
            },
            "endMs": millis(self.end),
            "foundMs": self.client.found.map(millis),
            "withoutWritableMs": millis(Instant::EPOCH + self.without()),
            "flaps": self.client.flaps,
            "writes": self.writes.as_ref().map(|writes| json!({
                "succeeded": writes.succeeded,
                "failed": writes.failed,
                "longestMs": millis(Instant::EPOCH + writes.longest.took),
                "longestAtMs": millis(writes.longest.began),
                "firstError": writes.first_error.as_ref().map(|(_, error)| error),
                "firstErrorMs": writes.first_error.as_ref().map(|(at, _)| millis(*at)),
            })),
            "outages": outages.collect::<Value>(),
            "refused": self.refusals().collect::<Value>(),
        })
    }
}

/// Describes the longest write and the first failed write.
fn tell(writes: &Writes) -> Vec<String> {
    let Longest { began, took, has_ended } = writes.longest;
    let took = short(took);
    let (began, end) = (time(began), if has_ended { "took" } else { "has not ended after" });
    let mut lines = vec![format!("{began}: the longest write began, and {end} {took}")];
    if let Some((at, error)) = &writes.first_error {
        lines.push(format!("{}: the first write failed: {error}", time(*at)));
    }
    lines
}

/// Formats the time of day in the simulation.
fn time(at: Instant) -> String {
    time_of_day(UNIX_EPOCH + BEGIN + at.since(Instant::EPOCH))
}

/// Returns the milliseconds since the start, with a precision of microseconds.
fn millis(at: Instant) -> f64 {
    at.since(Instant::EPOCH).as_micros() as f64 / 1e3
}
