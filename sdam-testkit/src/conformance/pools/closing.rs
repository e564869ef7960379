//! Checks of clearing and closing a pool.

use sdam_core::error::ErrorKind;

use super::{
    Outcome, PoolUser, ensure,
    server::Gate,
    setup::{Lab, expect_retryable},
};

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

pub(super) fn idle_connections_are_stale_after_a_clear<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A clear makes idle connections stale, so they are never checked out again (F-63, P-20).
    let mut setup = lab.ready("")?;
    let old = setup.use_socket()?;
    setup.clear();
    setup.ready();
    let new = setup.use_socket()?;
    ensure!(new != old, "a connection that was idle at a clear is handed out");
    setup.wait_for_close("waiting for a stale connection to be closed", old)
}

pub(super) fn connections_in_use_are_stale_after_a_clear<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A stale connection that is in use is closed when it is checked in (F-63, P-21).
    let mut setup = lab.ready("")?;
    let (connection, old) = setup.open_socket()?;
    setup.clear();
    setup.ready();
    setup.check_in(connection);
    let new = setup.use_socket()?;
    ensure!(new != old, "a connection that was in use at a clear is handed out again");
    setup.wait_for_close("waiting for a stale connection to be closed", old)
}

pub(super) fn connections_being_opened_are_stale_after_a_clear<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    // A connection is stale if a clear occurred while it was being established (P-22).
    let mut setup = lab.ready("")?;
    setup.server.hellos(Gate::Held);
    let attempt = setup.check_out();
    setup
        .until("waiting for a connection to be opened", |setup| setup.server.state().open() == 1)?;
    setup.clear_at_once(false, None);
    setup.ready_at_once();
    setup.step("answering the hello of a connection that was being opened at a clear");
    setup.server.hellos(Gate::Open);
    match setup.wait_for(&attempt)? {
        Ok(connection) => {
            let (connection, socket) = setup.socket_of(connection)?;
            ensure!(socket != 0, "a connection that was being opened at a clear is handed out");
            setup.check_in(connection);
        }
        Err(failure) => expect_retryable(&failure)?,
    }
    let socket = setup.use_socket()?;
    ensure!(socket != 0, "a connection that was being opened at a clear is handed out later");
    setup.wait_for_close("waiting for a stale connection to be closed", 0)
}

pub(super) fn a_clear_without_interruption_leaves_commands_alone<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    let mut setup = lab.ready("")?;
    let connection = setup.open()?;
    setup.server.commands(Gate::Held);
    let command = setup.command(connection);
    setup.clear();
    ensure!(!command.is_ready(), "a clear ends the command on a connection in use");
    setup.server.commands(Gate::Open);
    setup.step("waiting for the reply to a command that was sent before a clear");
    let outcome = setup.end_command(&command)?;
    outcome.map_err(|failure| format!("the command fails: {failure:#}"))
}

pub(super) fn an_interrupting_clear_ends_commands<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // Interrupted commands fail with retryable errors (F-65).
    let mut setup = lab.ready("")?;
    let connection = setup.open()?;
    setup.server.commands(Gate::Held);
    let command = setup.command(connection);
    setup.clear_at_once(true, None);
    setup.step("waiting for a command to be interrupted");
    match setup.end_command(&command)? {
        Ok(()) => return Err("a command without reply succeeds".into()),
        Err(failure) => expect_retryable(&failure)?,
    }
    setup.until("waiting for an interrupted connection to be closed", |setup| {
        setup.server.state().open() == 0
    })
}

pub(super) fn an_interrupting_clear_ends_the_opening_of_connections<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    // An interruption also affects connections that are being established (F-65).
    let mut setup = lab.ready("")?;
    setup.server.hellos(Gate::Held);
    let attempt = setup.check_out();
    setup.until("waiting for a connection to be opened", |setup| {
        setup.server.state().opening == 1
    })?;
    setup.clear_at_once(true, None);
    setup.step("waiting for a check-out to fail whose connection was being opened at such a clear");
    setup.refusal(&attempt)?;
    setup.until(
        "waiting for a connection to be closed that was being opened at such a clear",
        |setup| setup.server.state().opening == 0,
    )
}

pub(super) fn an_interrupting_clear_leaves_newer_connections_alone<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    // An interruption affects only connections of earlier generations (F-65).
    let mut setup = lab.ready("")?;
    let old = setup.open()?;
    setup.server.commands(Gate::Held);
    let old = setup.command(old);
    setup.clear_at_once(true, None);
    setup.ready_at_once();
    let new = setup.open()?;
    let new = setup.command(new);
    setup.step("waiting for a command to be interrupted");
    let _ = setup.end_command(&old)?;
    ensure!(!new.is_ready(), "the command on a newer connection ends, too");
    setup.server.commands(Gate::Open);
    setup.step("waiting for the reply to a command on a newer connection");
    let outcome = setup.end_command(&new)?;
    outcome.map_err(|failure| format!("the command on a newer connection fails: {failure:#}"))
}

pub(super) fn a_clear_pauses_the_pool<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A clear pauses the pool (F-63).
    let mut setup = lab.ready("")?;
    setup.use_one()?;
    setup.clear();
    setup.step("checking out a connection after a clear");
    let attempt = setup.check_out();
    setup.refusal(&attempt)
}

pub(super) fn a_clear_fails_waiting_check_outs<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A clear makes waiting check-outs fail with a retryable error (F-63).
    let mut setup = lab.ready("maxPoolSize=1")?;
    let connection = setup.open()?;
    let waiting = [setup.check_out(), setup.check_out()];
    setup.step("waiting for check-outs to fail after a clear");
    setup.clear();
    for attempt in waiting {
        setup.refusal(&attempt)?;
    }
    setup.check_in(connection);
    setup.ready();
    setup.use_one()
}
