//! Checks of the rules for check-outs, and for commands on checked-out connections.

use sdam_core::error::{Error, Stage};

use super::{
    Outcome, PoolUser, ensure,
    server::{BadReply, Gate, Server, SetGate},
    setup::{BREAKING, Lab},
};

pub(super) fn errors_of_commands_are_reported_once<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // An error from a command is reported exactly once, and before the caller sees it (P-24).
    let mut setup = lab.cleared()?;
    let (connection, socket) = setup.open_socket()?;
    let errors = setup.host.errors();
    ensure!(errors.is_empty(), "the reports of a successful command are {errors:?}");
    let outcome = setup.break_off(connection, BREAKING)?;
    ensure!(
        outcome.as_ref().is_err_and(Error::is_network),
        "the command ends with {outcome:?} instead of an error of the connection"
    );
    setup.expect_errors(&[Stage::Operation])?;
    setup.use_one()?;
    setup.wait_for_close("waiting for a broken connection to be closed", socket)
}

pub(super) fn connections_are_used_again<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    let mut setup = lab.ready("")?;
    let (first, second) = (setup.use_socket()?, setup.use_socket()?);
    ensure!(
        first == second,
        "a connection that was checked in is not used again; another one is opened"
    );
    Ok(())
}

pub(super) fn connections_with_unfinished_commands_are_not_reused<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    // A connection with an unfinished command is closed when it is checked in (P-23).
    let mut setup = lab.ready("")?;
    let (connection, broken) = setup.open_socket()?;
    let _ = setup.break_off(connection, BREAKING)?;
    let (connection, socket) = setup.open_socket()?;
    ensure!(socket != broken, "a connection that broke is handed out again");
    setup.server.commands(Gate::Held);
    setup.step("dropping a command that waits for its reply");
    let connection = setup.abandon_command(connection);
    setup.check_in(connection);
    setup.server.commands(Gate::Open);
    let other = setup.use_socket()?;
    ensure!(other != socket, "a connection with a reply under way is handed out again");
    Ok(())
}

pub(super) fn connections_with_bad_replies_are_not_reused<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A connection whose last exchange failed is closed when it is checked in (P-23).
    let replies = [
        (BadReply::Stray, "running a command that gets the reply to an earlier one first"),
        (BadReply::WrongResponseTo, "running a command that gets the reply to another one"),
        (BadReply::NoOk, "running a command that gets a reply without ok"),
        (BadReply::Malformed, "running a command that gets a reply that is not BSON"),
    ];
    for (bad, doing) in replies {
        let mut setup = lab.ready("")?;
        let (connection, socket) = setup.open_socket()?;
        setup.server.reply_badly(bad);
        setup.step(doing);
        let command = setup.command(connection);
        let outcome = setup.end_command(&command)?;
        ensure!(outcome.is_err(), "the command succeeds with a message that cannot be its reply");
        // If the pool kept the connection, one of two check-outs would get it.
        let connections = [setup.open()?, setup.open()?];
        for connection in connections {
            let (connection, later) = setup.socket_of(connection).map_err(|error| {
                format!("after a command with a {bad:?} reply, a later one has no reply: {error:#}")
            })?;
            ensure!(later != socket, "a connection with a {bad:?} reply is handed out again");
            setup.check_in(connection);
        }
        setup.wait_for_close("waiting for a connection with such a reply to be closed", socket)?;
    }
    Ok(())
}

pub(super) fn a_dropped_check_out_leaves_nothing<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A dropped check-out leaves no connection behind (P-9).
    let mut setup = lab.ready("maxPoolSize=1&maxConnecting=1")?;
    let stages: [(_, SetGate); 2] = [
        ("dropping check-outs while the connection is attempted", Server::connects),
        ("dropping check-outs while hello is not answered", Server::hellos),
    ];
    for (doing, set) in stages {
        set(&setup.server, Gate::Held);
        setup.drop_check_outs(doing);
        set(&setup.server, Gate::Open);
        let connection = setup.open()?;
        setup.drop_check_outs("dropping check-outs that wait for a connection in use");
        setup.step("dropping check-outs to which a connection was handed");
        let dropped = setup.check_out();
        let next = setup.check_out();
        dropped.abort();
        setup.check_in(connection);
        setup.serve([next])?;
        setup.clear();
        setup.ready();
    }
    setup.use_one()?;
    setup.close();
    setup.until("waiting for the connections of dropped check-outs to be closed", |setup| {
        setup.server.state().open() == 0 && setup.server.state().opening == 0
    })
}
