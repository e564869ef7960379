//! Descriptions of failovers, shared by all subcommands.

use std::time::Duration;

use sdam_events::facts::{Bounds, Failover, Loss, Outage};

/// Formats a duration of which only bounds are known, for example as `up to 9.2 s`.
pub(crate) fn range(bounds: Bounds, format: impl Fn(Duration) -> String) -> String {
    let [least, most] = [bounds.at_least, bounds.at_most].map(format);
    match bounds.at_least {
        _ if least == most => most,
        Duration::ZERO => format!("up to {most}"),
        _ => format!("{least} to {most}"),
    }
}

/// Describes the cause of an outage. Includes the time between the last sign of the old primary and
/// the moment when its loss was noticed, if these differ.
pub(crate) fn cause(outage: &Outage, format: impl Fn(Duration) -> String) -> String {
    let loss = outage.loss.to_string();
    let loss = loss.trim_end_matches('.');
    let silence = outage.noticed.since(outage.earliest());
    match outage.loss {
        _ if silence.is_zero() => loss.to_owned(),
        Loss::SteppedDown(_) => format!("{loss}; last seen as primary {} before", format(silence)),
        _ => format!("{loss}; last answer {} before", format(silence)),
    }
}

/// Describes a failover on one line.
pub(crate) fn describe(failover: &Failover, format: impl Fn(Duration) -> String) -> String {
    let Failover { outage, new, .. } = failover;
    let without = failover.without_primary();
    let time = range(without, &format);
    let end = match (&outage.lost, new) {
        (Some(old), Some(new)) if old == new => format!("{new} is primary again"),
        (Some(old), Some(new)) => format!("{old} -> {new}"),
        _ => return format!("writable again after {time}"),
    };
    match outage.loss {
        Loss::Replaced(_) if !without.at_most.is_zero() => {
            let cause = cause(outage, &format);
            format!("no primary for {time}: {end}, {cause}")
        }
        _ if without.at_most.is_zero() => format!("no gap noticed: {end}"),
        _ => format!("no primary for {time}: {end}"),
    }
}
