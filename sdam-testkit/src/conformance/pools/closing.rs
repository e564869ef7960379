//! Checks of closed pools.

use sdam_core::error::ErrorKind;

use super::{Outcome, PoolUser, ensure, server::Gate, setup::Lab};

pub(super) fn a_closed_pool_fails_check_outs<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A closed pool fails check-outs (P-40).
    let mut setup = lab.ready("")?;
    setup.use_one()?;
    setup.close();
    for doing in [
        "checking out a connection from a closed pool",
        "checking out a connection after ready was called on a closed pool",
    ] {
        setup.step(doing);
        let attempt = setup.check_out();
        setup.failure_of(ErrorKind::PoolClosed, &attempt)?;
        setup.ready();
    }
    Ok(())
}

pub(super) fn a_closed_pool_closes_its_connections<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A closed pool closes its idle connections, and closes those in use when they are checked in
    // (P-41).
    let mut setup = lab.ready("")?;
    let (used, socket) = setup.open_socket()?;
    setup.use_one()?;
    setup.close();
    setup.until("waiting for the idle connection of a closed pool to be closed", |setup| {
        setup.server.state().open() <= 1
    })?;
    ensure!(setup.server.is_open(socket), "a connection in use is closed with the pool");
    setup.check_in(used);
    setup.until(
        "waiting for a connection to be closed that was checked in to a closed pool",
        |setup| setup.server.state().open() == 0,
    )?;
    setup.step("waiting for the task of a closed pool to end");
    setup.wait_for_background()
}

pub(super) fn closing_fails_waiting_check_outs<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A pool that is closed also fails the check-outs that are waiting (P-40).
    let mut setup = lab.ready("maxPoolSize=1")?;
    let connection = setup.open()?;
    let attempt = setup.check_out();
    setup.close();
    setup.step("waiting for a check-out to fail after the pool was closed");
    setup.failure_of(ErrorKind::PoolClosed, &attempt)?;
    setup.check_in(connection);
    Ok(())
}

pub(super) fn errors_of_the_pool_are_not_reported<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // Errors of the pool itself are not reported to the topology (P-25).
    let mut setup = lab.paused("maxPoolSize=1")?;
    let paused = setup.check_out();
    setup.cancel(&paused);
    setup.ready();
    let connection = setup.open()?;
    let waiting = setup.check_out();
    setup.clear();
    setup.cancel(&waiting);
    setup.ready();
    setup.check_in(connection);
    let connection = setup.open()?;
    setup.server.commands(Gate::Held);
    let command = setup.command(connection);
    setup.clear_at_once(true, None);
    setup.settle();
    setup.server.commands(Gate::Open);
    setup.step("waiting for the end of a command");
    let _ = setup.end_command(&command)?;
    setup.close();
    let closed = setup.check_out();
    setup.cancel(&closed);
    setup.expect_errors(&[])
}
