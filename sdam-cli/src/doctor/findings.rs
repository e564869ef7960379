//! Derives findings from an observation, without I/O or a clock.

mod connection;
mod set;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sdam::select::Diagnosis;
use sdam_core::{
    closest,
    error::{Error, ErrorKind},
    hello::Hello,
    options::{ConfigError, Credential, Options, Warning},
    read_preference::ReadMode,
    server::ServerType,
    uri::ConnectionString,
};
use sdam_select::explain::Explanation;
use serde_json::Value;

use super::{
    finding::{Check, Finding, Status},
    observation::{Canary, Discovery, Greeting, Host, Login, Observation, Srv},
};

/// Returns the findings in the order of the checks.
pub(super) fn of(seen: &Observation) -> Vec<Finding> {
    let mut findings = connection_string(seen);
    findings.extend(seen.srv.as_ref().map(records));
    let Some(options) = seen.options.as_ref().filter(|_| seen.config.is_none()) else {
        return findings;
    };
    for host in &seen.hosts {
        findings.extend(connection::of(host, options));
    }
    if let Some(deployment) = &seen.deployment {
        findings.extend(set::of(seen, deployment, options));
    }
    findings.extend(times(&seen.hosts, options));
    findings.extend(seen.login.as_ref().map(|own| match &options.credential {
        Some(credential) => login(own, credential),
        None => demanded(own),
    }));
    if seen.login.is_none() && options.credential.is_some() {
        let mut finding =
            Finding::new(Check::Auth, Status::Skip, "there was no server to log in to");
        finding.blocked_by = blocker(&findings);
        findings.push(finding);
    }
    // The sort is stable, so servers keep their order.
    findings.sort_by_key(|finding| finding.check);
    if let Some(deployment) = &seen.deployment {
        let finding = selection(deployment, options, blocker(&findings));
        findings.push(finding);
    }
    findings.extend(seen.canary.as_ref().map(|own| written(own, blocker(&findings))));
    findings
}

/// Returns the name of the first failure or error, which is the reason why later checks are
/// skipped.
fn blocker(findings: &[Finding]) -> Option<String> {
    let mut blockers =
        findings.iter().filter(|own| matches!(own.status, Status::Fail | Status::Error));
    blockers.next().map(Finding::name)
}

/// Returns the findings about the connection string, or a passed check if there is no problem.
fn connection_string(seen: &Observation) -> Vec<Finding> {
    let mut findings: Vec<_> = seen.config.iter().map(refusal).collect();
    let said = |option: &str| seen.config.iter().any(|error| error.option() == option);
    let warnings = seen.warnings.iter();
    findings.extend(warnings.filter(|warning| !said(warning.option())).map(warn));
    if findings.is_empty() {
        findings.push(Finding::ok(Check::Uri, "the connection string is valid"));
    }
    findings
}

fn refusal(error: &ConfigError) -> Finding {
    let finding = Finding::fail(Check::Uri, error.reason()).about(error.option());
    let finding = match error.value() {
        "" => finding,
        value => finding.evidence("value", value),
    };
    let finding = match suggestion(error.option()) {
        Some(name) => finding.remedy(format!("write {name}")),
        None => finding,
    };
    match error.remedy() {
        "" => finding,
        remedy => finding.remedy(remedy),
    }
}

fn warn(warning: &Warning) -> Finding {
    let finding =
        Finding::warn(Check::Uri, format!("{}; {}", warning.reason(), warning.consequence()))
            .about(warning.option());
    match (suggestion(warning.option()), warning.option()) {
        (Some(name), _) => finding.remedy(format!("write {name}")),
        (None, lax @ ("tlsAllowInvalidCertificates" | "tlsAllowInvalidHostnames")) => {
            finding.remedy(format!("remove {lax} or tlsInsecure, and set tlsCAFile"))
        }
        (None, _) => finding.remedy("correct the option, or remove it"),
    }
}

/// Returns the known option whose name is most similar to the unknown `name`, if one is similar.
fn suggestion(name: &str) -> Option<&'static str> {
    closest(name, ConnectionString::known_options())
}

/// The greatest difference between clocks, in milliseconds, that causes no warning.
const CLOCKS: u64 = 1_000;
/// The greatest lag of a secondary, in milliseconds, that causes no warning. It allows for an idle
/// primary, which writes only every 10 s, and for servers that round the dates of writes to
/// seconds.
const LAG: i64 = 11_000;

const SEEDS: &str = "or list the hosts in a mongodb:// string";

/// Returns the finding about the DNS records for a `mongodb+srv` connection string.
fn records(srv: &Srv) -> Finding {
    let finding = |status, title: String| {
        Finding::new(Check::DnsSrv, status, title).about(&srv.name).took(srv.took)
    };
    let errors = [srv.hosts.as_ref().err(), srv.texts.as_ref().err()];
    if let Some(error) = errors.into_iter().flatten().next() {
        let title = format!("the name server gives no answer: {}", error.message());
        return finding(Status::Fail, title)
            .cause("this machine has no name server, or it cannot be reached")
            .cause("the name server refuses records of this kind, as some routers do")
            .remedy(format!("check the name servers of this machine, {SEEDS}"));
    }
    if srv.hosts.iter().all(Vec::is_empty) {
        return finding(Status::Fail, "there is no SRV record of this name".to_owned())
            .remedy(format!("check the name {} after mongodb+srv://, {SEEDS}", srv.host));
    }
    if let Some(refused) = &srv.refused {
        return finding(Status::Fail, refused.reason().to_owned()).remedy(refused.remedy());
    }
    let hosts = srv.hosts.iter().flatten();
    let hosts: Vec<String> = hosts.map(ToString::to_string).collect();
    let texts = srv.texts.iter().flatten();
    let texts: Vec<String> = texts.map(ToString::to_string).collect();
    finding(Status::Ok, counted(hosts.len(), "host", "hosts"))
        .evidence("hosts", hosts)
        .evidence("txt", texts)
}

/// Returns the findings about the clocks, lags and round-trip times of all servers that answered.
fn times(hosts: &[Host], options: &Options) -> Vec<Finding> {
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
    let serves = |kind: ServerType| {
        kind.is_data_bearing()
            && match options.read_preference.mode {
                ReadMode::Secondary | ReadMode::SecondaryPreferred => kind != ServerType::RsPrimary,
                ReadMode::Primary | ReadMode::PrimaryPreferred => kind != ServerType::RsSecondary,
                ReadMode::Nearest => true,
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

fn login(login: &Login, credential: &Credential) -> Finding {
    let finding = |status, title: String| {
        Finding::new(Check::Auth, status, title).about(&login.server).took(login.took)
    };
    let Some(error) = &login.error else {
        return finding(Status::Ok, "the credentials are accepted".to_owned());
    };
    if error.code() == Some(AUTHENTICATION_FAILED) {
        let source = credential.source();
        let elsewhere = if source == "admin" {
            "set authSource to the database in which the user was created, if that is not admin"
        } else {
            "set authSource=admin if the user was created there"
        };
        return finding(Status::Fail, "the server rejects the credentials".to_owned())
            .evidence("error", text(error))
            .evidence("authSource", source)
            .cause("the user name or the password is wrong")
            .cause(format!("the user was created in another database than {source} (authSource)"))
            .remedy(
                "check the user name and the password (special characters have to be \
                 percent-encoded)",
            )
            .remedy(elsewhere);
    }
    if error.kind() == ErrorKind::Timeout {
        return finding(Status::Fail, "the login took too long".to_owned())
            .evidence("error", text(error))
            .remedy(format!("{MORE_TIME}; look at the load of the server"));
    }
    if error.kind() == ErrorKind::Internal {
        return finding(Status::Error, "this program cannot log in".to_owned())
            .evidence("error", text(error))
            .remedy("check authMechanism; try the login with mongosh");
    }
    finding(Status::Fail, format!("the login failed: {}", error.message()))
        .evidence("error", text(error))
        .remedy(error.remedy().unwrap_or("look at the log of the server"))
}

/// Returns the finding about a server that requires a login although there are no credentials.
fn demanded(login: &Login) -> Finding {
    let server = &login.server;
    Finding::fail(Check::Auth, "the server demands a login, and there is no user")
        .about(server)
        .took(login.took)
        .remedy(format!(
            "add a user with a password, and the database that has the user: \
             mongodb://USER:PASSWORD@{server}/?authSource=admin"
        ))
}

/// Returns the finding about server selection, for writes and for reads with the connection
/// string's read preference.
fn selection(deployment: &Discovery, options: &Options, blocked_by: Option<String>) -> Finding {
    let names = |explanation: &Explanation| -> Vec<Value> {
        let serving = explanation.serving();
        serving.map(|server| server.address.as_str().into()).collect()
    };
    let refuses = |own: &Diagnosis| matches!(own, Diagnosis::Refuses { .. });
    let refusal = deployment.diagnoses.iter().find(|own| refuses(own));
    let (write, read) = (names(&deployment.write), names(&deployment.read));
    let mode = options.read_preference.to_string();
    let missing = match (write.is_empty(), read.is_empty()) {
        (false, false) => None,
        (true, false) => Some("no server takes writes".to_owned()),
        (false, true) => Some(format!("no server takes reads with {mode}")),
        (true, true) => Some(format!("no server takes writes, or reads with {mode}")),
    };
    let (status, title) = match (missing, &blocked_by) {
        // Do not report a problem, because a program that only reads does not need writes.
        (Some(_), _) if refusal.is_some() && !read.is_empty() => {
            (Status::Info, "there is a server for reads, but it refuses writes".to_owned())
        }
        (None, _) => (Status::Ok, "there are servers for writes and reads".to_owned()),
        (Some(missing), Some(_)) => (Status::Skip, missing),
        // Report a failure even though a program that only reads could do without a primary.
        (Some(missing), None) => (Status::Fail, missing),
    };
    let mut finding = Finding::new(Check::Select, status, title)
        .evidence("write", write)
        .evidence("read", read)
        .evidence("readPreference", mode);
    if let Some(refusal) = refusal {
        finding = finding.cause(refusal.to_string()).remedy(refusal.remedy());
    } else if status != Status::Ok {
        let verdicts = deployment.read.servers.iter().map(|server| {
            let words = match &server.verdict {
                sdam_select::explain::Verdict::Rejected(rejection) => rejection.to_string(),
                sdam_select::explain::Verdict::Eligible { .. } => "may be chosen".to_owned(),
                _ => "was not considered".to_owned(),
            };
            format!("{} {words}", server.address)
        });
        finding = finding.evidence("servers", verdicts.collect::<Vec<_>>());
    }
    if status == Status::Fail {
        if let Some(diagnosis) = deployment.diagnoses.first() {
            finding = finding.cause(diagnosis.to_string()).remedy(diagnosis.remedy());
        }
        finding = finding.remedy(
            "change readPreference or readPreferenceTags if the reads need no other server; \
             `sdam explain` with the same connection string has the reason for each server",
        );
    }
    finding.blocked_by = blocked_by.filter(|_| status == Status::Skip);
    finding
}

/// Returns the finding about the write test.
fn written(canary: &Canary, blocked_by: Option<String>) -> Finding {
    let collection = &canary.collection;
    let (step, error) = match &canary.outcome {
        Ok(()) => {
            let finding =
                Finding::ok(Check::Write, "a majority has acknowledged a write").about(collection);
            return finding.took(canary.took);
        }
        Err(failed) => failed,
    };
    let late = matches!(error.code(), Some(WRITE_CONCERN_FAILED | MAX_TIME_EXPIRED));
    let finding = |status, title: &str| {
        Finding::new(Check::Write, status, title)
            .about(collection)
            .took(canary.took)
            .evidence("step", *step)
            .evidence("error", text(error))
    };
    if blocked_by.is_some() {
        let mut finding = finding(Status::Skip, "the write failed for an earlier reason");
        finding.blocked_by = blocked_by;
        return finding;
    }
    if *step == Canary::DELETE && !late {
        return finding(Status::Warn, "the document was written, but could not be deleted")
            .remedy(format!("delete the documents of {collection} that are by \"sdam doctor\""));
    }
    match error.code() {
        _ if late || error.is_timeout() => {
            finding(Status::Fail, "no majority has acknowledged the write in time")
                .cause("members that hold data are down, or replicate too slowly")
                .cause("an arbiter votes, but acknowledges no write")
                .remedy(
                    "look at the lag of the secondaries and at rs.status(); or give it more time \
                     (--timeout 30)",
                )
        }
        Some(UNAUTHORIZED) => finding(Status::Fail, "the user may not write to the collection")
            .remedy(format!(
                "grant the user readWrite on the database of {collection}, or name a collection \
                 that it may write to"
            )),
        _ => finding(Status::Fail, "the write failed")
            .remedy("look at the error, and at the log of the primary"),
    }
}

/// Formats a server's error as its message, followed by its code if it has one.
fn text(error: &Error) -> String {
    match error.code() {
        Some(code) => format!("{} (code {code})", error.message()),
        None => error.message().to_string(),
    }
}

/// Formats a number, followed by its noun in the singular or the plural.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The remedy for a step that exceeded its time limit.
const MORE_TIME: &str = "give it more time (connectTimeoutMS, or --timeout 30)";

const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;
const MAX_TIME_EXPIRED: i32 = 50;
const WRITE_CONCERN_FAILED: i32 = 64;
