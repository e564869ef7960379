//! Checks of creating a pool, making it ready and opening connections.

use sdam_core::error::Stage;

use super::{
    Outcome, PoolUser, ensure,
    server::{Gate, Server, SetGate},
    setup::Lab,
};

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
