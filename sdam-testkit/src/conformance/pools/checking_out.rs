//! Checks of opening connections and checking them out: the rules for check-outs that wait, the
//! limits of a pool, and commands on checked-out connections.

use std::time::Duration;

use sdam_core::error::{Error, ErrorKind, Stage};

use super::{
    Outcome, PoolUser, ensure,
    server::{BadReply, Gate, Server, SetGate},
    setup::{Attempt, BREAKING, Lab},
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

pub(super) fn nothing_is_opened_before_the_pool_is_ready<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A pool opens no connection before it is ready, not even for `minPoolSize` (P-1).
    let mut setup = lab.paused("minPoolSize=1")?;
    setup.step("checking out a connection from a pool that was never ready");
    let attempt = setup.check_out();
    let attempts = setup.server.state().attempts;
    ensure!(attempts == 0, "{attempts} connections are opened");
    setup.cancel(&attempt);
    setup.clear();
    let attempts = setup.server.state().attempts;
    ensure!(attempts == 0, "{attempts} connections are opened after a clear");
    Ok(())
}

pub(super) fn a_prepared_pool_opens_at_most_one_socket_and_sends_no_hello<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    let mut setup = lab.paused("minPoolSize=1")?;
    setup.step("preparing a pool");
    setup.prepare();
    setup.prepare();
    let (attempts, hellos) = {
        let state = setup.server.state();
        (state.attempts, state.hellos_sent)
    };
    ensure!(attempts < 2, "{attempts} sockets are opened");
    ensure!(hellos == 0, "a hello is sent before the pool is ready");
    setup.step("clearing a pool that was prepared");
    setup.clear();
    setup.wait_until(|setup| setup.server.state().open() == 0)?;
    setup.prepare();
    let open = setup.server.state().open();
    ensure!(open == 0, "a socket is opened after a clear");
    Ok(())
}

pub(super) fn check_outs_from_a_paused_pool_fail<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A paused pool refuses check-outs with a retryable error (F-68).
    let mut setup = lab.paused("")?;
    setup.step("checking out a connection from a pool that was never ready");
    let attempt = setup.check_out();
    setup.refusal(&attempt)
}

pub(super) fn a_ready_pool_serves_check_outs<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    let mut setup = lab.ready("")?;
    let (first, _) = setup.open_socket()?;
    let (second, socket) = setup.open_socket()?;
    ensure!(setup.server.state().open() >= 2, "two check-outs share a connection");
    setup.check_in(first);
    let (second, same) = setup.socket_of(second)?;
    ensure!(socket == same, "a connection in use has changed its socket");
    setup.check_in(second);
    setup.clear();
    setup.ready();
    setup.use_socket().map(drop)
}

pub(super) fn errors_of_opening_are_reported_once<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // If establishing a connection fails, the error is reported once (P-24).
    let stages: [(_, SetGate); 2] =
        [(Stage::Connect, Server::connects), (Stage::Hello, Server::hellos)];
    for (stage, set) in stages {
        let mut setup = lab.cleared()?;
        set(&setup.server, Gate::Broken);
        setup.step("checking out a connection from a server that cannot be reached");
        let attempt = setup.check_out();
        let failure = setup.failure(&attempt)?;
        ensure!(
            failure.is_network(),
            "the check-out fails without an error of the connection: {failure:#}"
        );
        let attempts = setup.server.state().attempts;
        setup.expect_errors(&vec![stage; attempts])?;
    }
    Ok(())
}

pub(super) fn handshakes_are_reported_before_connections_are_used<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    // The reply to hello is reported before the connection is used (P-26).
    let mut setup = lab.cleared()?;
    let connection = setup.open()?;
    let expected = [setup.host.generation_now()];
    let reported = setup.host.handshakes();
    ensure!(
        reported == expected,
        "handshakes of the generations {reported:?} instead of {expected:?} are reported when a \
         connection is handed out"
    );
    setup.check_in(connection);
    Ok(())
}

pub(super) fn the_size_of_the_pool_is_limited<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // At most `maxPoolSize` connections exist (P-2).
    let mut setup = lab.ready("maxPoolSize=3&maxConnecting=10")?;
    let mut waiting: Vec<_> = (0..9).map(|_| setup.check_out()).collect();
    while !waiting.is_empty() {
        setup
            .until("waiting for one of nine check-outs from a pool of three connections", |_| {
                waiting.iter().any(Attempt::is_ready)
            })?;
        let ready: Vec<_> = waiting.extract_if(.., |attempt| attempt.is_ready()).collect();
        for attempt in ready {
            let connection = setup.connection(&attempt)?;
            let (connection, _) = setup.socket_of(connection)?;
            setup.check_in(connection);
        }
    }
    let most = setup.server.state().most_open;
    ensure!(most <= 3, "{most} connections were open at the same time");
    ensure!(most == 3, "only {most} connections were opened for nine check-outs");
    Ok(())
}

pub(super) fn the_number_of_attempts_is_limited<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // At most `maxConnecting` connections are established at the same time (P-3).
    let mut setup = lab.ready("maxConnecting=2")?;
    setup.server.hellos(Gate::Held);
    let waiting: Vec<_> = (0..8).map(|_| setup.check_out()).collect();
    setup.until("waiting for two connections to be opened", |setup| {
        setup.server.state().opening == 2
    })?;
    setup.server.hellos(Gate::Open);
    setup.serve(waiting)?;
    let most = setup.server.state().most_opening;
    ensure!(most <= 2, "{most} connections were being opened at the same time");
    Ok(())
}

pub(super) fn check_outs_are_served_in_order<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // Check-outs are served in the order of their arrival (P-4).
    let mut setup = lab.ready("maxPoolSize=1")?;
    let mut connection = setup.open()?;
    let mut waiting: Vec<_> = (0..5).map(|_| setup.check_out()).collect();
    while !waiting.is_empty() {
        setup.check_in(connection);
        setup.until("waiting for the check-out that began first", |_| {
            waiting.iter().any(Attempt::is_ready)
        })?;
        let first = waiting.remove(0);
        ensure!(first.is_ready(), "a check-out that began later is served first");
        connection = setup.connection(&first)?;
    }
    setup.check_in(connection);
    Ok(())
}

pub(super) fn a_connection_that_cannot_be_opened_leaves_its_place<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    // A connection that cannot be established frees its slot (P-8).
    let mut setup = lab.ready("maxPoolSize=2&maxConnecting=2")?;
    for set in [Server::connects, Server::hellos] {
        set(&setup.server, Gate::Broken);
        for _ in 0..4 {
            setup.step("checking out a connection after others could not be opened");
            let attempt = setup.check_out();
            setup.failure(&attempt)?;
        }
        set(&setup.server, Gate::Open);
    }
    setup.step("opening two connections after eight others could not be opened");
    let attempts = [setup.check_out(), setup.check_out()];
    setup.serve(attempts)
}

pub(super) fn a_connection_that_is_checked_in_ends_the_wait_to_open_one<U: PoolUser>(
    lab: &Lab<U>,
) -> Outcome {
    // While a check-out waits to establish a connection, it takes a connection that is checked in
    // (P-5).
    let mut setup = lab.ready("maxConnecting=1")?;
    let connection = setup.open()?;
    setup.server.hellos(Gate::Held);
    let waiting = [setup.check_out(), setup.check_out()];
    setup.check_in(connection);
    setup.until(
        "checking in a connection while a check-out waits for its turn to open one \
         (maxConnecting)",
        |_| waiting.iter().any(Attempt::is_ready),
    )?;
    setup.server.hellos(Gate::Open);
    setup.serve(waiting)
}

pub(super) fn a_check_out_gives_up_after_its_time<U: PoolUser>(lab: &Lab<U>) -> Outcome {
    // A check-out fails after `waitQueueTimeoutMS` (P-6).
    let mut setup = lab.ready("maxPoolSize=1&waitQueueTimeoutMS=500")?;
    let connection = setup.open()?;
    let attempt = setup.check_out();
    setup.advance(Duration::from_millis(499));
    ensure!(!attempt.is_ready(), "a check-out does not wait for all of waitQueueTimeoutMS");
    setup.step("waiting for a check-out to give up after waitQueueTimeoutMS");
    setup.advance(Duration::from_millis(1));
    setup.failure_of(ErrorKind::WaitQueueTimeout, &attempt)?;
    setup.check_in(connection);
    setup.use_one()
}
