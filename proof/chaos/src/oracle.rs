//! The oracles. `step` checks after every step; the others check at the end of a run: elections
//! (invariant P2), the replay of the record, reports of silent servers, the bytes on the wire, and
//! the stages and messages of connection errors.

pub(crate) mod cadence;
pub(crate) mod pooled;
pub(crate) mod step;
pub(crate) mod truth;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{Event, EventKind, EventName},
    ids::ServerId,
    options::Options,
    srv::MIN_RESCAN_INTERVAL,
    time::Instant,
};
use sdam_events::{
    record::RecordSink,
    replay::replay_to,
    sink::{EventSink, Interest},
};
use sdam_model::oracle::election;
use sdam_sim::{
    oracle::{Oracle, Violation},
    runtime::Sim,
    scenario::{NetFault, Step},
};

use crate::{
    plan::{Access, Plan, SRV_NAME},
    record::Stalls,
};

/// Checks every change of the topology.
pub(crate) fn check_elections(events: &[Event]) -> Result<(), Violation> {
    for event in events {
        let EventKind::TopologyDescriptionChanged { previous, new } = &event.kind else {
            continue;
        };
        if let Some(reason) = election(previous, new) {
            let message = format!("{reason}: {previous} becomes {new}");
            return Err(Oracle::Election.violated(event.at, message));
        }
    }
    Ok(())
}

/// Events that a replay does not reproduce, because they do not follow from the recorded inputs.
const NOT_REPEATED: Interest = Interest::of(&[EventName::Input, EventName::ConfigWarning]);

/// Records `events` and checks that a replay reproduces all of them. Heartbeat events and measured
/// round-trip times are not recorded, so the replay derives them from the recorded inputs.
pub(crate) fn check_replay(options: &Options, events: &[Event]) -> Result<(), Violation> {
    let end = events.last().map(|event| event.at).unwrap_or_default();
    let difference = match difference(options, events) {
        Ok(difference) => difference,
        Err(error) => Some(error.to_string()),
    };
    difference.map_or(Ok(()), |difference| Err(Oracle::Replay.violated(end, difference)))
}

fn difference(
    options: &Options,
    events: &[Event],
) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let sink = RecordSink::new(Vec::new(), options)?;
    let interest = sink.interest();
    let recorded = events.iter().filter(|event| interest.contains(event.kind.name()));
    for event in recorded.clone() {
        sink.emit(event);
    }
    let mut replayed = Vec::new();
    let outcome = replay_to(&*sink.finish()?, |_, event| {
        if event.kind.name() == EventName::RttMeasured {
            replayed.push(event.kind.clone());
        }
    })?;
    if let Some(divergence) = outcome.divergence {
        return Ok(Some(format!("the replay differs: {divergence}")));
    }
    let repeated =
        recorded.filter(|event| !NOT_REPEATED.contains(event.kind.name())).count() as u64;
    if outcome.matched != repeated {
        let matched = outcome.matched;
        return Ok(Some(format!("{matched} of {repeated} events are repeated")));
    }
    let measured =
        events.iter().map(|event| &event.kind).filter(|kind| kind.name() == EventName::RttMeasured);
    let is_same = measured.eq(&replayed);
    Ok((!is_same).then(|| "other round-trip times are measured".to_owned()))
}

/// The time for which a server must leave a request unanswered before a client without a detector
/// reports it as silent.
const PATIENCE: Duration = Duration::from_secs(1);

/// The lateness of a timer from which the client concludes that its host has stalled.
const LATE: Duration = Duration::from_millis(500);

/// Checks every report of a silent server, and returns the number of reports.
pub(crate) fn check_silence(
    options: &Options,
    events: &[Event],
    stalls: &Stalls,
) -> Result<u64, Violation> {
    let patience = options.detector.map_or(PATIENCE, |detector| detector.floor);
    // In a stall of at least this length, even the timer of a server that was not overdue before
    // becomes due, and is so late that the client notices the stall.
    let noticed = options.monitor_frequency()
        + options.connect_timeout.unwrap_or_default()
        + options.spread
        + LATE;
    let mut answered = BTreeMap::<ServerId, Instant>::new();
    let mut known = BTreeSet::new();
    let mut suspected = BTreeSet::new();
    let mut count = 0;
    for Event { at, kind, .. } in events {
        let ensure = |right: bool, server: ServerId, what: &str| {
            Oracle::Silence.ensure(*at, right, || format!("server {server} {what}"))
        };
        match kind {
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
                answered.insert(heartbeat.server, *at);
            }
            EventKind::RttMeasured { server, .. } => {
                answered.insert(*server, *at);
            }
            EventKind::ServerDescriptionChanged { new, .. } => {
                known.remove(&new.id);
                known.extend(new.server_type.is_available().then_some(new.id));
            }
            EventKind::ServerSuspected { server, silence, .. } => {
                let last = answered.get(server).copied().unwrap_or_default();
                let quiet = at.since(last).min(*silence);
                ensure(quiet >= patience, *server, &format!("is suspected after {quiet:?}"))?;
                let last = *at - quiet;
                let is_stall = stalls.ended(*at).is_some_and(|stall| {
                    stall.end.since(stall.start) >= noticed && stall.start.since(last) < patience
                });
                ensure(!is_stall, *server, "is suspected because this host stalled")?;
                ensure(known.contains(server), *server, "is suspected and Unknown")?;
                ensure(suspected.insert(*server), *server, "is suspected twice")?;
                count += 1;
            }
            EventKind::ServerSuspicionEnded { server, .. } => {
                ensure(suspected.remove(server), *server, "was not suspected")?;
            }
            EventKind::TopologyClosed => {
                for server in &suspected {
                    ensure(false, *server, "is suspected after the end")?;
                }
            }
            _ => {}
        }
    }
    Ok(count)
}

/// Checks that nothing was sent in plain text or bypassed the proxy.
pub(crate) fn check_traffic(access: Access, sim: &Sim) -> Result<(), Violation> {
    let traffic = sim.network().traffic();
    let complaint = if access.tls && traffic.plain_text > 0 {
        "plain text was sent although TLS is on"
    } else if access.is_proxied() && traffic.direct > 0 {
        "a connection was opened past the proxy"
    } else {
        return Ok(());
    };
    Err(Oracle::Wire.violated(sim.now(), format!("{complaint}: {traffic:?}")))
}

/// Checks that, after the first look-up, the client looks up SRV records at most once a minute, or
/// once per heartbeat interval if look-ups can fail.
pub(crate) fn check_look_ups(plan: &Plan, sim: &Sim) -> Result<(), Violation> {
    let fails = |step: &Step| match step {
        Step::Net(NetFault::Dns(_, fault)) => fault.is_some(),
        Step::Net(NetFault::Srv { hosts, .. }) => hosts.is_empty(),
        _ => false,
    };
    let interval = if plan.scenario.steps.iter().any(|(_, step)| fails(step)) {
        plan.heartbeat()
    } else {
        MIN_RESCAN_INTERVAL
    };
    let elapsed = sim.now().since(Instant::EPOCH).as_nanos();
    let max = 1 + elapsed / interval.as_nanos();
    let there = sim.dns().lookups(SRV_NAME);
    Oracle::Cadence.ensure(sim.now(), u128::from(there) <= max, || {
        format!("SRV records were looked up {there} times, allowed are {max}")
    })
}

/// Checks that every failed check failed at a stage at which an error is possible, given the
/// client's route to the deployment and the faults so far.
pub(crate) fn check_stages(plan: &Plan, events: &[Event]) -> Result<(), Violation> {
    let faults = Beginnings::of(plan);
    for event in events {
        let EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } = &event.kind else {
            continue;
        };
        if let Some(complaint) = complaint(plan.access, &faults, event.at, failure) {
            let message = format!("{}: {failure:#}: {complaint}", heartbeat.address);
            return Err(Oracle::Stages.violated(event.at, message));
        }
    }
    Ok(())
}

/// The times at which the first fault of each kind begins.
struct Beginnings {
    /// True if timers may be late. The time limit of a check may then expire before the time limit
    /// of the stage, whose error would be more exact.
    timers_are_late: bool,
    look_ups: Option<Instant>,
    certificates: Option<Instant>,
}

impl Beginnings {
    fn of(plan: &Plan) -> Self {
        let first = |is_it: fn(&NetFault) -> bool| {
            let steps = plan.scenario.steps.iter();
            let found = steps.filter(|(_, step)| matches!(step, Step::Net(fault) if is_it(fault)));
            found.map(|(at, _)| Instant::EPOCH + *at).min()
        };
        Self {
            timers_are_late: plan.stalls || plan.disturbance.is_some(),
            look_ups: first(|fault| matches!(fault, NetFault::Dns(..))),
            certificates: first(|fault| {
                matches!(fault, NetFault::Tls(..) | NetFault::Certificate(..))
            }),
        }
    }
}

fn complaint(
    access: Access,
    faults: &Beginnings,
    at: Instant,
    error: &Error,
) -> Option<&'static str> {
    let begun = |fault: Option<Instant>| fault.is_some_and(|begin| begin <= at);
    if error.kind() == ErrorKind::Cancelled {
        // An attempt that was cancelled did not fail at any particular stage.
        return None;
    }
    let is_allowed = match error.stage() {
        Stage::Dns => !access.is_proxied() && begun(faults.look_ups),
        Stage::Connect => !access.is_proxied() || faults.timers_are_late && error.is_timeout(),
        Stage::Proxy => access.is_proxied(),
        Stage::Tls => {
            access.tls && (error.kind() != ErrorKind::Protocol || begun(faults.certificates))
        }
        _ => true,
    };
    // The messages of TLS errors and proxy errors say where the error comes from.
    let says = |word: &str| error.message().contains(word);
    if !is_allowed {
        Some("nothing can fail at this stage")
    } else if (says("TLS") || says("certificate")) && error.stage() != Stage::Tls {
        Some("it is of the stage tls")
    } else if says("proxy") && error.stage() != Stage::Proxy {
        Some("it is of the stage proxy")
    } else {
        None
    }
}
