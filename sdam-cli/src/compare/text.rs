use std::{
    io::{self, Write},
    time::{Duration, UNIX_EPOCH},
};

use super::{
    Comparison,
    clocks::{Clock, Evidence},
    sweep::Period,
    views::{Client, Subject},
};
use crate::{duration::short, failover::describe, log::timestamp, terminal::sanitize};

/// The maximum number of periods to show for each subject, and of failovers to show for each
/// client.
const MAX_PERIODS: usize = 20;

/// Formats a time in UTC.
pub(super) fn time(nanos: u64) -> String {
    timestamp(UNIX_EPOCH + Duration::from_nanos(nanos))
}

pub(super) fn no_overlap(clients: &[Client]) -> String {
    let spans = clients.iter().map(|client| {
        let (from, to) = (time(client.from), time(client.to));
        format!("{} knows its servers from {from} to {to}", client.file)
    });
    let spans: Vec<_> = spans.collect();
    format!("the recordings have no time in common: {}; record at the same time", spans.join(", "))
}

/// Writes the comparison as human-readable text.
pub(super) fn write(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    verdict(comparison, out)?;
    writeln!(out)?;
    let (from, length) = (time(comparison.from), comparison.to - comparison.from);
    let count = comparison.clients.len();
    let length = short(Duration::from_nanos(length));
    writeln!(out, "{count} clients, together from {from} for {length}")?;
    for (client, clock) in comparison.clients.iter().zip(&comparison.clocks) {
        writeln!(out, "  {} ({}): {}", client.name, client.file, of_clock(clock))?;
        let first = client.failovers.len().saturating_sub(MAX_PERIODS);
        if first > 0 {
            writeln!(out, "    {first} earlier failovers")?;
        }
        for (at, failover) in &client.failovers[first..] {
            writeln!(out, "    {}: {}", time(*at), sanitize(&describe(failover, short)))?;
        }
    }
    for (subject, periods) in &comparison.disagreements {
        writeln!(out)?;
        let name = name(subject);
        let total = short(periods.iter().map(Period::length).sum());
        match periods.len() {
            1 => writeln!(out, "{name}: 1 disagreement, {total}")?,
            count => writeln!(out, "{name}: {count} disagreements, {total} in all")?,
        }
        let mut shown: Vec<&Period> = periods.iter().collect();
        shown.sort_by_key(|period| std::cmp::Reverse(period.length()));
        let hidden = shown.split_off(shown.len().min(MAX_PERIODS));
        shown.sort_by_key(|period| period.from);
        for period in shown {
            of_period(comparison, period, out)?;
        }
        if !hidden.is_empty() {
            writeln!(out, "  and {} shorter ones", hidden.len())?;
        }
    }
    Ok(())
}

/// Writes how long the clients disagreed, and which one differed from the others.
fn verdict(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    let all = comparison.disagreements.iter();
    let all = all.flat_map(|(subject, periods)| periods.iter().map(move |own| (own, subject)));
    let Some((longest, subject)) = all.max_by_key(|(period, _)| period.length()) else {
        return writeln!(out, "The clients agreed at all times.");
    };
    let length = short(longest.length());
    let relation = if comparison.agreed() { "within" } else { "longer than" };
    let (name, tolerance) = (name(subject), short(comparison.tolerance));
    writeln!(
        out,
        "The clients disagreed about {name} for {length}, {relation} the tolerance of {tolerance}."
    )?;
    if let Some((client, time)) = comparison.outlier() {
        let name = sanitize(&client.name);
        writeln!(out, "Most saw something else than {name} for {} in all.", short(time))?;
    }
    Ok(())
}

fn name(subject: &Subject) -> &str {
    match subject {
        Subject::Primary => "the primary",
        Subject::Server(address) => address,
    }
}

fn of_clock(clock: &Clock) -> String {
    match clock {
        Clock::Reference => "its clock is the reference".to_owned(),
        Clock::Unknown => "nothing tells how its clock differs; it is taken as it is".to_owned(),
        Clock::Ahead { nanos, uncertainty, evidence } => {
            let difference = short(Duration::from_nanos(nanos.unsigned_abs()));
            let direction = if *nanos < 0 { "behind" } else { "ahead" };
            let evidence = match evidence {
                Evidence::ServerTimes(servers) => {
                    let plural = if *servers == 1 { "" } else { "s" };
                    format!("by the times in the replies of {servers} server{plural}")
                }
                Evidence::Changes(changes) => {
                    format!("by {changes} changes of topologyVersion that both saw")
                }
            };
            let uncertainty = short(*uncertainty);
            format!(
                "its clock is {difference} {direction} \u{b1} {uncertainty}, {evidence}; taken out"
            )
        }
    }
}

fn of_period(comparison: &Comparison, period: &Period, out: &mut impl Write) -> io::Result<()> {
    let length = short(period.length());
    let note = if comparison.exceeds(period) { "" } else { ", within the tolerance" };
    writeln!(out, "  {} for {length}{note}", time(period.from))?;
    for (at, views) in &period.views {
        let views = comparison.clients.iter().zip(views).map(|(client, view)| {
            sanitize(&format!("{} {}", client.name, view.as_deref().unwrap_or("none")))
        });
        let views: Vec<_> = views.collect();
        let after = short(Duration::from_nanos(at - period.from));
        writeln!(out, "    +{after:<9} {}", views.join(", "))?;
    }
    Ok(())
}
