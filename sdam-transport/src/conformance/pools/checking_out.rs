//! Checks of check-outs, and of commands on checked out connections.

use sdam_core::error::{Error, Stage};

use super::{
    Outcome, PoolUser, ensure,
    server::{BadReply, Gate, Server},
    setup::Lab,
};

pub(super) fn errors_of_commands_are_reported_once<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // P-24
    let mut setup = lab.paused("")?;
    setup.clear();
    setup.ready();
    let (connection, socket) = setup.open_socket()?;
    let errors = setup.host.errors();
    ensure!(errors.is_empty(), "the reports of a successful command are {errors:?}");
    setup.server.commands(Gate::Broken);
    setup.step("running a command on a connection that breaks");
    let attempt = setup.command(connection);
    let (connection, outcome) = setup.wait_for(&attempt)?;
    ensure!(
        outcome.as_ref().is_err_and(Error::is_network),
        "the command ends with {outcome:?} instead of an error of the connection"
    );
    setup.check_in(connection);
    let expected = [(Stage::Operation, setup.host.generation_now())];
    let errors = setup.host.errors();
    ensure!(errors == expected, "the reports are {errors:?} instead of {expected:?}");
    setup.server.commands(Gate::Open);
    let connection = setup.open()?;
    setup.check_in(connection);
    setup.step("waiting for a broken connection to be closed");
    setup.wait_until(|setup| !setup.server.is_open(socket))
}

pub(super) fn connections_are_used_again<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    let mut setup = lab.ready("")?;
    let (connection, first) = setup.open_socket()?;
    setup.check_in(connection);
    let (connection, second) = setup.open_socket()?;
    ensure!(
        first == second,
        "a connection that was checked in is not used again; another one is opened"
    );
    setup.check_in(connection);
    Ok(())
}

pub(super) fn connections_with_unfinished_commands_are_not_reused<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    // P-23
    let mut setup = lab.ready("")?;
    let (connection, broken) = setup.open_socket()?;
    setup.server.commands(Gate::Broken);
    let attempt = setup.command(connection);
    let (connection, _) = setup.wait_for(&attempt)?;
    setup.check_in(connection);
    setup.server.commands(Gate::Open);
    let (connection, socket) = setup.open_socket()?;
    ensure!(socket != broken, "a connection that broke is handed out again");
    setup.server.commands(Gate::Held);
    setup.step("dropping a command that waits for its reply");
    let connection = setup.abandon_command(connection);
    setup.check_in(connection);
    setup.server.commands(Gate::Open);
    let (connection, other) = setup.open_socket()?;
    ensure!(other != socket, "a connection with a reply under way is handed out again");
    setup.check_in(connection);
    Ok(())
}

pub(super) fn connections_with_bad_replies_are_not_reused<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // P-23
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
        let attempt = setup.command(connection);
        let (connection, outcome) = setup.wait_for(&attempt)?;
        ensure!(outcome.is_err(), "the command succeeds with a message that cannot be its reply");
        setup.check_in(connection);
        // With two connections in use, one would be found wherever the pool keeps it.
        let connections = [setup.open()?, setup.open()?];
        for connection in connections {
            let (connection, later) = setup.socket_of(connection).map_err(|error| {
                format!("after a command with a {bad:?} reply, a later one has no reply: {error:#}")
            })?;
            ensure!(later != socket, "a connection with a {bad:?} reply is handed out again");
            setup.check_in(connection);
        }
        setup.step("waiting for a connection with such a reply to be closed");
        setup.wait_until(|setup| !setup.server.is_open(socket))?;
    }
    Ok(())
}

pub(super) fn a_dropped_check_out_leaves_nothing<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // P-9
    let mut setup = lab.ready("maxPoolSize=1&maxConnecting=1")?;
    let stages: [(_, SetGate); 2] = [
        ("dropping check-outs while the connection is attempted", Server::connects),
        ("dropping check-outs while hello is not answered", Server::hellos),
    ];
    for (doing, set) in stages {
        setup.step(doing);
        set(&setup.server, Gate::Held);
        for _ in 0..ROUNDS {
            let attempt = setup.check_out();
            setup.cancel(&attempt);
        }
        set(&setup.server, Gate::Open);
        let connection = setup.open()?;
        setup.step("dropping check-outs that wait for a connection in use");
        for _ in 0..ROUNDS {
            let attempt = setup.check_out();
            setup.cancel(&attempt);
        }
        setup.step("dropping check-outs to which a connection was handed");
        let dropped = setup.check_out();
        let next = setup.check_out();
        dropped.abort();
        setup.check_in(connection);
        let connection = setup.connection(&next)?;
        setup.check_in(connection);
        setup.clear();
        setup.ready();
    }
    let connection = setup.open()?;
    setup.check_in(connection);
    setup.close();
    setup.step("waiting for the connections of dropped check-outs to be closed");
    setup.wait_until(|setup| setup.server.state().open() == 0 && setup.server.state().opening == 0)
}

type SetGate = fn(&Server, Gate);

/// The number of check-outs that are dropped at each stage.
const ROUNDS: usize = 100;
