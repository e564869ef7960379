//! Findings about clocks, replication lag and round-trip times.

use std::time::Duration;

use sdam_core::{hello::Hello, options::Options, read_preference::ReadMode, server::ServerType};

use crate::doctor::{
    finding::{Check, Finding},
    observation::{Greeting, Host},
};

/// The greatest difference between clocks, in milliseconds, that causes no warning.
const CLOCKS: u64 = 1_000;
/// The greatest lag of a secondary, in milliseconds, that causes no warning. It allows for an idle
/// primary, which writes only every 10 s, and for servers that round the dates of writes to
/// seconds.
const LAG: i64 = 11_000;

/// Returns the findings about all servers that answered.
pub(super) fn of(hosts: &[Host], options: &Options) -> Vec<Finding> {
    let greeted: Vec<_> =
        hosts.iter().filter_map(|host| Some((host, host.greeting.as_ref()?))).collect();
    let mut findings: Vec<_> = greeted.iter().filter_map(|own| clock(own.0, own.1)).collect();
    findings.extend(lags(&greeted));
    findings.extend(round_trips(&greeted, options));
    findings
}

fn clock(host: &Host, greeting: &Greeting) -> Option<Finding> {
    let difference = greeting.clock?;
    let seconds = difference as f64 / 1e3;
    // The whole delay may have occurred in one direction, so the uncertainty is a full round trip.
    let doubt = greeting.round_trips.iter().min().copied().unwrap_or_default();
    let allowed = CLOCKS.saturating_add(u64::try_from(doubt.as_millis()).unwrap_or(u64::MAX));
    let finding = if difference.unsigned_abs() > allowed {
        let way = if difference > 0 { "ahead of" } else { "behind" };
        Finding::warn(
            Check::Clock,
            format!("the server's clock is {:.1} s {way} this machine's", seconds.abs()),
        )
        .cause("one of the two machines is not synchronized")
        .remedy("check NTP on both (chronyc tracking, timedatectl)")
    } else {
        Finding::ok(Check::Clock, "the clocks agree")
    };
    Some(finding.about(&host.address).evidence("seconds", seconds))
}

fn lags(greeted: &[(&Host, &Greeting)]) -> Vec<Finding> {
    let written = |hello: &Hello, kind| {
        let written = hello.last_write_date;
        written.filter(|_| hello.server_type == kind)
    };
    let hellos = || greeted.iter().map(|(host, greeting)| (host, &greeting.hello));
    let primaries = hellos().filter_map(|(_, hello)| written(hello, ServerType::RsPrimary));
    let Some(newest) = primaries.max() else {
        return Vec::new();
    };
    hellos()
        .filter_map(|(host, hello)| {
            let lag = newest - written(hello, ServerType::RsSecondary)?;
            let seconds = lag.max(0) as f64 / 1e3;
            let finding = if lag > LAG {
                Finding::warn(
                    Check::Lag,
                    format!("the secondary is {seconds:.0} s behind the primary"),
                )
                .cause("it is overloaded, its link is slow, or it is delayed on purpose")
                .remedy(
                    "look at rs.printSecondaryReplicationInfo(); reads that need newer data \
                         can set maxStalenessSeconds",
                )
            } else {
                Finding::ok(Check::Lag, "the secondary is up to date")
            };
            Some(finding.about(&host.address).evidence("seconds", seconds))
        })
        .collect()
}

fn round_trips(greeted: &[(&Host, &Greeting)], options: &Options) -> Vec<Finding> {
    let serves = |kind| {
        let any =
            matches!(kind, ServerType::Standalone | ServerType::Mongos | ServerType::LoadBalancer);
        match options.read_preference.mode {
            ReadMode::Secondary | ReadMode::SecondaryPreferred => {
                any || kind == ServerType::RsSecondary
            }
            ReadMode::Primary | ReadMode::PrimaryPreferred => any || kind == ServerType::RsPrimary,
            ReadMode::Nearest => {
                any || matches!(kind, ServerType::RsPrimary | ServerType::RsSecondary)
            }
        }
    };
    let suitable = greeted.iter().filter(|(_, own)| serves(own.hello.server_type));
    let fastest = suitable.filter_map(|(_, own)| own.average()).min();
    greeted
        .iter()
        .filter_map(|(host, greeting)| {
            let average = greeting.average()?;
            let window = fastest.map(|fastest| fastest + options.local_threshold);
            let far =
                window.filter(|window| average > *window && serves(greeting.hello.server_type));
            let slowest = greeting.round_trips.iter().max().copied().unwrap_or_default();
            let limit = options.connect_timeout;
            let finding = if let Some(limit) = limit.filter(|limit| *limit < slowest * 3) {
                let (limit, slowest) = (limit.as_millis(), millis(slowest));
                let title = format!(
                    "connectTimeoutMS={limit} is less than three round trips of up to {slowest}"
                );
                let remedy =
                    "raise connectTimeoutMS, so that slow replies are not taken for failures";
                Finding::warn(Check::Rtt, title).remedy(remedy)
            } else if let Some(window) = far {
                let title = format!(
                    "the server is never chosen: {} is outside the window of {}",
                    millis(average),
                    millis(window)
                );
                let needed = average.saturating_sub(fastest.unwrap_or_default()).as_millis() + 1;
                Finding::warn(Check::Rtt, title)
                    .cause("the server is farther away than the others, or its link is slow")
                    .remedy(format!(
                        "nothing if that is intended; localThresholdMS={needed} would include it"
                    ))
            } else {
                Finding::ok(Check::Rtt, millis(average))
            };
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let least = greeting.round_trips.iter().min().copied().unwrap_or_default();
            Some(
                finding
                    .about(&host.address)
                    .evidence("averageMs", ms(average))
                    .evidence("minMs", ms(least))
                    .evidence("maxMs", ms(slowest)),
            )
        })
        .collect()
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
