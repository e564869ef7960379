//! Checks the bytes on the wire, and the stages and messages of connection errors.

use sdam_core::{
    error::{Error, ErrorKind, Stage},
    event::{Event, EventKind},
    srv::MIN_RESCAN_INTERVAL,
    time::Instant,
};
use sdam_sim::{
    oracle::{Oracle, Violation},
    runtime::Sim,
    scenario::{NetFault, Step},
};

use crate::plan::{Access, Plan, SRV_NAME};

/// Checks that nothing was sent in plain text or bypassed the proxy.
pub(crate) fn check(access: Access, sim: &Sim) -> Result<(), Violation> {
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
    if u128::from(there) > max {
        let message = format!("SRV records were looked up {there} times, allowed are {max}");
        return Err(Oracle::Cadence.violated(sim.now(), message));
    }
    Ok(())
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
    /// True if timers are late. The time limit of a check may then end before that of the stage,
    /// whose error would be more exact.
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
