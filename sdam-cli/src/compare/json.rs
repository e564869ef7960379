use sdam_events::facts::Failover;
use serde_json::{Map, Value, json};

use super::{
    Comparison,
    clocks::{Clock, Evidence},
    sweep::Period,
    text::time,
    views::Subject,
};
use crate::{duration::short, failover::cause};

/// Returns the comparison as JSON. Durations are in seconds; times are on the first client's clock.
pub(super) fn of(comparison: &Comparison) -> Value {
    let clients = comparison.clients.iter().zip(&comparison.clocks);
    let clients = clients.map(|(client, clock)| {
        let (ahead, uncertainty, evidence) = of_clock(clock);
        json!({
            "name": client.name,
            "file": client.file,
            "clockAhead": ahead,
            "clockUncertainty": uncertainty,
            "clockEvidence": evidence,
            "failovers": client.failovers.iter().map(of_failover).collect::<Vec<_>>(),
        })
    });
    let disagreements = comparison.disagreements.iter().flat_map(|(subject, periods)| {
        let about = match subject {
            Subject::Primary => Value::Null,
            Subject::Server(address) => address.as_str().into(),
        };
        periods.iter().map(move |period| of_period(comparison, &about, period))
    });
    json!({
        "schema": "sdam.compare/1",
        "from": time(comparison.from),
        "seconds": seconds(comparison.to - comparison.from),
        "tolerance": comparison.tolerance.as_secs_f64(),
        "agreed": comparison.agreed(),
        "clients": clients.collect::<Vec<_>>(),
        "disagreements": disagreements.collect::<Vec<_>>(),
    })
}

/// Returns a failover as JSON; `from` is the old primary and `to` the new one.
fn of_failover((at, failover): &(u64, Failover)) -> Value {
    let (outage, without) = (&failover.outage, failover.without_primary());
    json!({
        "at": time(*at),
        "from": outage.lost,
        "to": failover.new,
        "secondsAtLeast": without.at_least.as_secs_f64(),
        "secondsAtMost": without.at_most.as_secs_f64(),
        "cause": cause(outage, short),
    })
}

fn of_clock(clock: &Clock) -> (Value, Value, Value) {
    match clock {
        Clock::Reference => (json!(0.0), json!(0.0), json!("reference")),
        Clock::Unknown => (Value::Null, Value::Null, Value::Null),
        Clock::Ahead { nanos, uncertainty, evidence } => {
            let evidence = match evidence {
                Evidence::ServerTimes(_) => "localTime",
                Evidence::Changes(_) => "topologyVersion",
            };
            let ahead = seconds(nanos.unsigned_abs());
            let ahead = if *nanos < 0 { -ahead } else { ahead };
            (json!(ahead), json!(uncertainty.as_secs_f64()), json!(evidence))
        }
    }
}

/// Returns one disagreement as JSON; `server` is null if it concerns the primary.
fn of_period(comparison: &Comparison, server: &Value, period: &Period) -> Value {
    let views = period.views.iter().map(|(at, views)| {
        let names = comparison.clients.iter().map(|client| client.name.clone());
        let views = views.iter().map(|view| json!(view));
        let views: Map<String, Value> = names.zip(views).collect();
        json!({ "after": seconds(at - period.from), "views": views })
    });
    json!({
        "about": if server.is_null() { "primary" } else { "type" },
        "server": server,
        "from": time(period.from),
        "seconds": period.length().as_secs_f64(),
        "exceedsTolerance": comparison.exceeds(period),
        "views": views.collect::<Vec<_>>(),
    })
}

fn seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}
