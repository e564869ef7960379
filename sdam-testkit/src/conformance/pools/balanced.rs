//! Checks of pools behind a load balancer.

use sdam_core::ids::ObjectId;

use super::{
    Outcome, PoolUser, ensure,
    host::Report,
    setup::{BREAKING, Lab, Setup},
};

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
