//! Checks of the calls to the pool while the topology is locked, and of the pool's own locks.

use sdam_core::ids::ObjectId;

use super::{Outcome, PoolUser, ensure, server::Gate, setup::Lab};

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
