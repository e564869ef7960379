//! Checks of the limits of a pool, and of check-outs that have to wait.

use std::time::Duration;

use sdam_core::error::ErrorKind;

use super::{
    Outcome, PoolUser, ensure,
    server::{Gate, Server},
    setup::Lab,
    tasks::Attempt,
};

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
