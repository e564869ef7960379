//! Findings about the connection string and its DNS records.

use sdam_core::{
    closest,
    options::{ConfigError, Warning},
    uri::ConnectionString,
};

use super::counted;
use crate::doctor::{
    check::Check,
    finding::{Finding, Status},
    observation::{Observation, Srv},
};

/// Returns the findings about the connection string, or a passed check if there is no problem.
pub(super) fn of(seen: &Observation) -> Vec<Finding> {
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

const SEEDS: &str = "or list the hosts in a mongodb:// string";

/// Returns the finding about the DNS records for a `mongodb+srv` connection string.
pub(super) fn records(srv: &Srv) -> Finding {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_options_are_recognized_and_others_are_not() {
        let check = |name, expected| assert_eq!(suggestion(name), expected, "{name}");
        check("replicaset", None);
        check("replicaSte", Some("replicaSet"));
        check("readPreferance", Some("readPreference"));
        check("localTresholdMS", Some("localThresholdMS"));
        check("conectTimeoutMs", Some("connectTimeoutMS"));
        check("colour", None);
    }
}
