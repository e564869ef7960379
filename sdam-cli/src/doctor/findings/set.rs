//! Findings about the set as a whole, for example whether its servers belong together.

use std::collections::BTreeMap;

use sdam::select::Diagnosis;
use sdam_core::{
    address::ServerAddress, hello::Hello, options::Options, server::ServerType,
    topology::DepartureReason,
};

use crate::doctor::{
    finding::{Check, Finding, Status},
    observation::{Discovery, Host, Observation},
};

/// Returns the findings about the deployment as a whole.
pub(super) fn of(seen: &Observation, deployment: &Discovery, options: &Options) -> Vec<Finding> {
    let hellos: Vec<_> = seen.hosts.iter().filter_map(greeted).collect();
    let mut findings: Vec<_> = deployment.diagnoses.iter().filter_map(kind).collect();
    if options.load_balanced {
        findings.extend(hellos.iter().filter_map(|(host, hello)| no_balancer(host, hello)));
    }
    let is_set = deployment.topology.topology_type().is_replica_set();
    if is_set {
        for stranger in hellos.iter().filter_map(|(host, hello)| stranger(host, hello)) {
            // Replace the finding that comes from the client's own view of this server. The client
            // has no such finding if the primary replied first.
            findings.retain(|own| own.subject != stranger.subject);
            findings.push(stranger);
        }
    }
    let of_several = several_sets(&hellos);
    let is_one = of_several.is_none();
    if let Some(finding) = of_several {
        findings = vec![finding];
    } else if findings.is_empty() && seen.hosts.iter().any(|host| host.greeting.is_some()) {
        let title = deployment.topology.topology_type().to_string();
        let set = deployment.topology.set_name();
        findings.push(Finding::ok(Check::TopoKind, title).evidence("setName", set));
    }
    let others = hellos.iter().filter(|(_, hello)| hello.server_type == ServerType::RsOther);
    findings.extend(others.map(|(host, _)| without_data(host)));
    if options.direct_connection == Some(true) {
        findings.extend(hellos.iter().filter_map(|(host, hello)| direct(host, hello)));
    }
    let has_members = hellos.iter().any(|(_, hello)| is_member(hello.server_type));
    if is_one && is_set && has_members && options.direct_connection != Some(true) {
        if !findings.iter().any(Finding::is_problem) {
            findings.extend(names(&seen.hosts));
        }
        findings.push(primary(&hellos, seen));
    }
    findings
}

fn greeted(host: &Host) -> Option<(&Host, &Hello)> {
    let greeting = host.greeting.as_ref()?;
    Some((host, &greeting.hello))
}

fn is_member(kind: ServerType) -> bool {
    matches!(
        kind,
        ServerType::RsPrimary
            | ServerType::RsSecondary
            | ServerType::RsArbiter
            | ServerType::RsOther
    )
}

/// Returns the finding about seeds that belong to different sets, of which a client uses only one.
fn several_sets(hellos: &[(&Host, &Hello)]) -> Option<Finding> {
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    // A server that a member names belongs to the same set as the member, so compare only the
    // seeds.
    for (host, hello) in hellos.iter().filter(|(host, _)| host.named_by.is_none()) {
        let set = hello.set_name.as_deref().filter(|_| is_member(hello.server_type));
        if let Some(set) = set {
            sets.entry(set).or_default().push(host.address.as_str());
        }
    }
    let (name, seeds) = sets.first_key_value().filter(|_| sets.len() > 1)?;
    let each = sets.iter().map(|(set, seeds)| format!("{set}: {}", seeds.join(", ")));
    Some(
        Finding::fail(Check::TopoKind, format!("the seeds are members of {} sets", sets.len()))
            .about(seeds.first()?)
            .evidence("sets", each.collect::<Vec<_>>())
            .remedy(format!(
                "keep the seeds of one set only, and name it; for {name}: mongodb://{}/?replicaSet={name}",
                seeds.join(",")
            )),
    )
}

/// Returns the finding about a server that is not a load balancer although `loadBalanced` is set.
fn no_balancer(host: &Host, hello: &Hello) -> Option<Finding> {
    let error = hello.load_balanced_service().err()?;
    let title = format!("loadBalanced is set, but the server is a {}", hello.server_type);
    let remedy =
        "remove loadBalanced=true, or connect to the load balancer in front of the mongoses";
    let finding = Finding::fail(Check::TopoKind, title).about(&host.address);
    Some(finding.evidence("error", error.message()).remedy(remedy))
}

/// Returns the finding about a seed that is a standalone server or a mongos, although the
/// deployment should be a replica set.
fn stranger(host: &Host, hello: &Hello) -> Option<Finding> {
    let is_stranger = matches!(hello.server_type, ServerType::Standalone | ServerType::Mongos);
    (is_stranger && host.named_by.is_none()).then(|| {
        let title = format!("the seed is a {}, and no part of a replica set", hello.server_type);
        Finding::fail(Check::TopoKind, title).about(&host.address).remedy(format!(
            "remove {} from the seeds; if it is the whole deployment, remove replicaSet",
            host.address
        ))
    })
}

/// Returns the finding about a server that does not belong to the topology, if `diagnosis` names
/// one.
fn kind(diagnosis: &Diagnosis) -> Option<Finding> {
    let found = match diagnosis {
        Diagnosis::Departed(departure) if departure.reason.is_mistake() => {
            let finding = Finding::fail(Check::TopoKind, diagnosis.to_string());
            let finding = finding.about(&departure.address);
            match &departure.reason {
                DepartureReason::WrongSetName { found: Some(found), wanted } => {
                    finding.evidence("found", &**found).evidence("wanted", &**wanted).remedy(
                        format!("set replicaSet={found}, or connect to the members of {wanted}"),
                    )
                }
                _ => finding,
            }
        }
        Diagnosis::Departed(departure)
            if matches!(departure.reason, DepartureReason::NotListed { .. }) =>
        {
            Finding::warn(Check::TopoKind, diagnosis.to_string()).about(&departure.address)
        }
        Diagnosis::WrongSetName { address, error } => {
            Finding::fail(Check::TopoKind, error.message().to_string()).about(address)
        }
        _ => return None,
    };
    Some(if found.remedies.is_empty() {
        found.remedy(diagnosis.remedy().to_string())
    } else {
        found
    })
}

/// Returns the finding about a member that answers but serves neither reads nor writes.
fn without_data(host: &Host) -> Finding {
    let address = &host.address;
    let title = "the member is neither primary nor secondary, so clients send it nothing";
    Finding::warn(Check::TopoMembers, title)
        .about(address)
        .cause("it is starting, recovering, rolling back or under maintenance")
        .cause("it is hidden")
        .remedy(format!("look at the state of {address} in rs.status(), and wait for SECONDARY"))
}

/// Returns the finding about a direct connection to a member that refuses writes.
fn direct(host: &Host, hello: &Hello) -> Option<Finding> {
    let named = hello.primary.as_ref().map(|primary| format!(", now {primary}"));
    (hello.server_type == ServerType::RsSecondary).then(|| {
        Finding::warn(Check::TopoPrimary, "the server is a secondary, which refuses writes")
            .about(&host.address)
            .cause("directConnection=true: clients send everything to this server")
            .remedy(format!(
                "remove directConnection=true, so that clients find the primary{}, or only read",
                named.unwrap_or_default()
            ))
    })
}

/// Checks that the members call themselves by the same names as the connection string does.
fn names(hosts: &[Host]) -> Option<Finding> {
    let renamed = || {
        let named = hosts.iter().filter_map(|host| Some((host, greeted(host)?.1.me.as_ref()?)));
        named.filter(|(host, me)| **me != host.address)
    };
    let of = |me: &ServerAddress| hosts.iter().find(|own| own.address == *me);
    let exchanged = renamed().find(|(host, me)| host.place.is_some() && of(me).is_some());
    if let Some((host, me)) = exchanged {
        let title = format!("the server calls itself {me}, which is another member");
        let finding = Finding::fail(Check::TopoMembers, title);
        let (address, place) = (&host.address, &host.place);
        let remedy = format!("exchange the places of {address} and {me} in --translate");
        let place = place.as_ref().map(ToString::to_string);
        return Some(finding.about(address).evidence("place", place).remedy(remedy));
    }
    // If a server's own name does not lead to a server that answers, another finding reports this,
    // with other remedies.
    let leads_there = |me| of(me).is_some_and(|own| own.greeting.is_some());
    if let Some((host, me)) = renamed().find(|(_, me)| leads_there(me)) {
        let title = format!("the server calls itself {me}; clients go on with that name");
        let finding = Finding::new(Check::TopoMembers, Status::Info, title);
        let remedy = format!("use {me} in the connection string");
        return Some(finding.about(&host.address).remedy(remedy));
    }
    let all_answer = hosts.iter().all(|host| host.greeting.is_some());
    all_answer.then(|| {
        let title = format!("all {} members answer by their own names", hosts.len());
        Finding::ok(Check::TopoMembers, title)
    })
}

/// Checks that there is exactly one primary and that all members agree on it.
fn primary(hellos: &[(&Host, &Hello)], seen: &Observation) -> Finding {
    let of = |kind| -> Vec<_> {
        let servers = hellos.iter().filter(|(_, hello)| hello.server_type == kind);
        servers.map(|(host, hello)| (&host.address, *hello)).collect()
    };
    // A server that is known by two names counts as only one primary.
    let primaries: BTreeMap<_, _> = of(ServerType::RsPrimary)
        .into_iter()
        .map(|(address, hello)| (hello.me.as_ref().unwrap_or(address), hello))
        .collect();
    let views = hellos.iter().filter_map(|(host, hello)| {
        let primary = hello.primary.as_ref()?;
        Some(format!("{} says {primary}", host.address))
    });
    let views: Vec<_> = views.collect();
    let finding = match primaries.first_key_value() {
        None => without_primary(hellos, seen),
        Some((address, hello)) if primaries.len() == 1 => agreement(hellos, address, hello),
        Some(_) => several(&primaries),
    };
    finding.evidence("views", views)
}

/// Checks that all members agree on the primary.
fn agreement(hellos: &[(&Host, &Hello)], primary: &ServerAddress, of_primary: &Hello) -> Finding {
    let differs = |hello: &Hello| hello.primary.as_ref().is_some_and(|named| named != primary);
    let differing = addresses(hellos, differs);
    let version = of_primary.election.set_version;
    let stale = addresses(hellos, |hello| {
        is_member(hello.server_type) && hello.election.set_version != version
    });
    let remedy = |who| format!("run the check again; if it stays, look at rs.status() of {who}");
    if !differing.is_empty() {
        let title = format!("the primary is {primary}, but {differing} names another one");
        Finding::warn(Check::TopoPrimary, title)
            .cause("an election has just ended, or the members do not reach each other")
            .remedy(remedy(differing))
    } else if stale.is_empty() {
        Finding::ok(Check::TopoPrimary, format!("the primary is {primary}"))
    } else {
        let title = format!("{stale} has another version of the configuration");
        Finding::warn(Check::TopoPrimary, title)
            .cause("the set was reconfigured, and the member does not reach the others")
            .remedy(remedy(stale))
    }
}

/// Returns the addresses of the servers whose replies satisfy `holds`.
fn addresses(hellos: &[(&Host, &Hello)], holds: impl Fn(&Hello) -> bool) -> String {
    let found = hellos.iter().filter(|(_, hello)| holds(hello));
    let found = found.map(|(host, _)| host.address.to_string());
    found.collect::<Vec<_>>().join(", ")
}

/// Returns the finding about several primaries.
fn several(primaries: &BTreeMap<&ServerAddress, &Hello>) -> Finding {
    let each = primaries.iter().map(|(address, hello)| {
        let election = hello.election;
        let id = election.election_id.map(|id| id.to_string());
        format!(
            "{address}: electionId {}, setVersion {}",
            id.as_deref().unwrap_or("none"),
            election.set_version.unwrap_or_default()
        )
    });
    let names: Vec<_> = primaries.keys().map(ToString::to_string).collect();
    let title = format!("{} servers call themselves primary", primaries.len());
    Finding::fail(Check::TopoPrimary, title)
        .evidence("primaries", each.collect::<Vec<_>>())
        .cause("the set is partitioned, and the older primary has not noticed yet")
        .remedy(format!(
            "run the check again after 10 s: the one with the lower electionId steps down; if it \
             does not, check the network between {}",
            names.join(" and ")
        ))
}

fn without_primary(hellos: &[(&Host, &Hello)], seen: &Observation) -> Finding {
    let lost = seen.hosts.iter().filter(|host| host.greeting.is_none());
    let lost: Vec<_> = lost.map(|host| host.address.to_string()).collect();
    let named = hellos.iter().find_map(|(_, hello)| hello.primary.as_ref());
    let finding = if let Some(named) = named {
        let title = format!("the members know the primary {named}, but it does not answer here");
        Finding::fail(Check::TopoPrimary, title)
            .remedy(format!("let this machine reach {named}: see the finding about it"))
    } else {
        let (count, all) = (hellos.len(), seen.hosts.len());
        let title = format!("the set has no primary; {count} of {all} members answer");
        Finding::fail(Check::TopoPrimary, title)
            .cause("an election is going on, which takes about 12 s")
            .cause("fewer than half of the voting members reach each other")
            .remedy(match lost.first() {
                Some(_) => format!("{AGAIN}, start {}", lost.join(", ")),
                None => format!("{AGAIN}, look at rs.status() of {}", addresses(hellos, |_| true)),
            })
    };
    finding.evidence("silent", lost)
}

/// The first remedy that is suggested when there is no primary.
const AGAIN: &str = "run the check again after 15 s; if it stays";
