//! Measurements of the driver, on simulated servers in another process and on a real replica set.

mod checkout;
mod deployment;
mod failover;
mod idle;
mod memory;
mod process;
mod push;
mod server;
mod throughput;

use std::io::Write;

use serde_json::json;

use self::server::Kind;
use crate::Result;

/// True to shorten measurements to a fraction of their time, for tests of this program.
#[derive(Clone, Copy, Debug)]
pub struct Quick(bool);

impl Quick {
    fn or<T>(self, quick: T, full: T) -> T {
        if self.0 { quick } else { full }
    }
}

type Measurement = fn(Quick) -> Result<()>;

/// The names of the measurements.
pub const NAMES: [&str; 6] = ["checkout", "throughput", "push", "memory", "idle", "failover"];

const MEASUREMENTS: [Measurement; NAMES.len()] =
    [checkout::all, throughput::all, push::all, memory::all, idle::all, failover::all];

/// Runs the named measurements, or all.
///
/// # Errors
/// If a measurement fails, or a name is unknown.
pub fn run(words: &[String]) -> Result<()> {
    let (options, names): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with('-'));
    if options.iter().any(|option| *option != "--quick") {
        return Err(format!("unknown options: {options:?}").into());
    }
    let quick = Quick(!options.is_empty());
    if let Some(name) = names.iter().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(format!("there is no measurement {name}").into());
    }
    for (name, measure) in NAMES.into_iter().zip(MEASUREMENTS) {
        if names.is_empty() || names.iter().any(|wanted| wanted.as_str() == name) {
            measure(quick).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(())
}

/// Serves a simulated deployment until standard input ends.
pub fn serve(words: &[String]) -> Result<()> {
    let [kind, members] = words else {
        return Err("usage: driver-checks serve replica-set|sharded N".into());
    };
    server::run(Kind::named(kind)?, members.parse()?)
}

fn print(figure: &str, unit: &str, value: f64) -> Result<()> {
    // More digits would suggest a precision that the value does not have.
    let value = (value * 1000.0).round() / 1000.0;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", json!({ "figure": figure, "unit": unit, "value": value }))?;
    Ok(out.flush()?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
