//! Checks of the calls between a pool and its topology: no lock is held in either direction, and
//! behind a load balancer the end of each reported connection is reported once.

use sdam_core::ids::ObjectId;

use super::{
    Outcome, PoolUser, ensure,
    host::Report,
    server::Gate,
    setup::{BREAKING, Lab, Setup},
};

pub(super) fn calls_of_the_topology_return_at_once<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    let mut setup = lab.paused("minPoolSize=1&maxPoolSize=4&maxConnecting=1")?;
    setup.ensure_lock_respected("create")?;
    setup.step("calling ready");
    setup.ready();
    setup.ensure_lock_respected("ready")?;
    for is_last in [false, true] {
        // The pool has an idle connection, a connection in use, a connection that is being opened,
        // and check-outs that wait.
        let idle = setup.open()?;
        let used = setup.open()?;
        setup.check_in(idle);
        setup.server.commands(Gate::Held);
        let command = setup.command(used);
        setup.server.hellos(Gate::Held);
        let waiting: Vec<_> = (0..6).map(|_| setup.check_out()).collect();
        if is_last {
            setup.step("calling close with connections in every state");
            setup.close();
            setup.ensure_lock_respected("close")?;
            setup.step("calling ready, clear and close after close");
            setup.ready();
            setup.clear();
            setup.close();
            setup.ensure_lock_respected("the calls after close")?;
        } else {
            setup.step("calling clear with connections in every state");
            setup.clear();
            setup.ensure_lock_respected("clear")?;
            setup.step("calling clear again, to interrupt connections in use");
            setup.clear_at_once(true, None);
            setup.settle();
            setup.ensure_lock_respected("clear")?;
            setup.step("calling ready after clear");
            setup.ready();
            setup.ready();
            setup.ensure_lock_respected("ready")?;
        }
        setup.server.hellos(Gate::Open);
        setup.server.commands(Gate::Open);
        for attempt in waiting {
            setup.cancel(&attempt);
        }
        setup.step("waiting for the end of a command");
        let _ = setup.end_command(&command)?;
    }
    Ok(())
}

pub(super) fn reports_are_made_with_no_lock_held<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    for options in ["", "loadBalanced=true"] {
        if !options.is_empty() && !lab.is_balanced() {
            continue;
        }
        // Each case uses a new pool, so that a connection that one case breaks does not affect
        // another.
        let start = || {
            let setup = lab.ready(options)?;
            if !options.is_empty() {
                setup.server.lead_to(ObjectId::default());
            }
            setup.react();
            Ok::<_, String>(setup)
        };
        let mut setup = start()?;
        setup.step("reporting a handshake to a topology that calls the pool");
        let attempt = setup.check_out();
        let connection = setup.connection(&attempt)?;
        let doing = "reporting a broken command to a topology that calls the pool";
        let outcome = setup.break_off(connection, doing)?;
        ensure!(outcome.is_err(), "a command without reply succeeds");
        let mut setup = start()?;
        setup.step("reporting a refused connection to a topology that calls the pool");
        setup.server.connects(Gate::Broken);
        let attempt = setup.check_out();
        setup.failure(&attempt)?;
        ensure!(!setup.host.errors().is_empty(), "no error is reported");
    }
    Ok(())
}

pub(super) fn each_counted_connection_ends_once<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    let mut setup = lab.ready("loadBalanced=true")?;
    let services @ [_, _, broken] = [service(1), service(2), service(3)];
    let first = open_to(&mut setup, services[0])?;
    let second = open_to(&mut setup, services[1])?;
    let third = open_to(&mut setup, broken)?;
    let _ = setup.break_off(third, BREAKING)?;
    setup.check_in(first);
    setup.close();
    setup.check_in(second);
    setup.until("waiting for the reports of the ends of three connections", |setup| {
        setup.host.ends().len() >= 3
    })?;
    let mut ends = setup.host.ends();
    ends.sort_unstable();
    ensure!(
        ends == services,
        "the ends of connections to {ends:?} are reported instead of one for each service"
    );
    let reports = setup.host.reports();
    let error = |report: &Report| matches!(report, Report::Error { service, .. } if *service == Some(broken));
    let error = reports.iter().position(error);
    ensure!(error.is_some(), "the error of a service is reported without it");
    let end = reports.iter().position(|report| *report == Report::End(broken));
    ensure!(error < end, "the end of a connection is reported before its error");
    Ok(())
}

pub(super) fn a_clear_of_one_service_leaves_the_others<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    let mut setup = lab.ready("loadBalanced=true")?;
    let (cleared, other) = (service(1), service(2));
    let first = open_to(&mut setup, cleared)?;
    let (first, stale) = setup.socket_of(first)?;
    let second = open_to(&mut setup, other)?;
    let (second, fresh) = setup.socket_of(second)?;
    setup.check_in(first);
    setup.check_in(second);
    setup.clear_at_once(false, Some(cleared));
    setup.settle();
    setup.server.lead_to(service(3));
    let (third, one) = setup.open_socket()?;
    let (fourth, two) = setup.open_socket()?;
    ensure!(
        ![one, two].contains(&stale),
        "a connection to a service that was cleared is handed out"
    );
    ensure!(
        [one, two].contains(&fresh),
        "a connection to another service is not handed out after a clear"
    );
    setup.check_in(third);
    setup.check_in(fourth);
    Ok(())
}

pub(super) fn a_clear_of_one_service_fails_no_check_out<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    for is_returned in [false, true] {
        let mut setup = lab.ready("loadBalanced=true&maxPoolSize=1")?;
        let cleared = service(1);
        let connection = open_to(&mut setup, cleared)?;
        let attempt = setup.check_out();
        if is_returned {
            setup.step("clearing the service of a connection that was just handed to a check-out");
            setup.check_in_at_once(connection);
            setup.clear_at_once(false, Some(cleared));
        } else {
            setup.step("clearing the service of a connection for which a check-out waits");
            setup.clear_at_once(false, Some(cleared));
            setup.settle();
            setup.check_in(connection);
        }
        setup.serve([attempt])?;
    }
    Ok(())
}

fn service(number: u8) -> ObjectId {
    ObjectId::from_bytes([number; 12])
}

/// Opens a connection that leads to `service`.
fn open_to<U: PoolUser>(setup: &mut Setup<U>, service: ObjectId) -> Result<U::Connection, String> {
    setup.server.lead_to(service);
    setup.open()
}
