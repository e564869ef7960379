//! Inputs that have to be ignored.

use sdam_core::{
    deployment::{ConnId, Input, Outputs, Timer},
    error::{Error, ErrorKind, ErrorOutcome, Stage},
    ids::{Generation, ServerId},
    report::ErrorReport,
};

use crate::{oracle::ensure, start::Call, watch::Connection, world::World};

impl World {
    /// Checks that unrequested answers, answers on closed connections, and inputs for servers that
    /// have left are ignored.
    pub(crate) fn check_late_answers(&mut self, call: Call, gone: &[ConnId]) -> Result<(), String> {
        let unasked = call.about.and_then(|server| self.watch_of(server));
        let unasked = unasked.map(|watch| watch.connections().map(Connection::unasked));
        for (conn, answers) in unasked.into_iter().flatten() {
            self.check_ignored(conn, answers)?;
        }
        if gone.is_empty() {
            return Ok(());
        }
        let before = self.key();
        for &conn in gone {
            self.check_ignored(conn, [true; 3])?;
            if self.watch_of(conn.server).is_none() {
                self.check_gone(conn)?;
            }
        }
        ensure(self.key() == before, || {
            format!("answers on the closed connections {gone:?} have an effect")
        })
    }

    /// Checks that answers on a connection have no effect: that it is open, a reply, an error.
    fn check_ignored(
        &mut self,
        conn: ConnId,
        [connected, reply, failed]: [bool; 3],
    ) -> Result<(), String> {
        let at = self.now;
        let error = || Error::new(ErrorKind::Network, Stage::Hello, "late");
        if connected {
            self.ignores(conn, "open", Input::Connected { conn })?;
        }
        if reply {
            let input =
                Input::Reply { conn, sent: at, at, reply: Err(error()).into(), more_to_come: true };
            self.ignores(conn, "a reply", input)?;
        }
        if failed {
            let error = error();
            self.ignores(conn, "an error", Input::Failed { conn, at, error })?;
        }
        Ok(())
    }

    fn check_gone(&mut self, conn: ConnId) -> Result<(), String> {
        let server = conn.server;
        self.check_unwatched(server)?;
        let error = ErrorReport::new(Generation::FIRST, Error::auth("late"));
        let (outcome, outputs) = self.deployment.handle_error(self.now, server, &error);
        if outcome == ErrorOutcome::UnknownServer {
            quiet(conn, "an error of an operation", &outputs)
        } else {
            Err(format!("server {server} has left, and its error is {outcome:?}"))
        }
    }

    /// Checks that inputs about the checks of a server without any are ignored.
    pub(crate) fn check_unwatched(&mut self, server: ServerId) -> Result<(), String> {
        let timer = Timer::Server(server);
        let inputs = [
            Input::Due { timer, wanted: true },
            Input::CheckRequested { server },
            Input::Deserted { server },
            Input::Played {
                server,
                outcome: Err(Error::new(ErrorKind::Network, Stage::Hello, "late")),
                rtt: core::time::Duration::ZERO,
            },
        ];
        inputs.into_iter().try_for_each(|input| {
            let outputs = self.deployment.handle(self.now, input.clone());
            ensure(outputs.is_empty(), || {
                format!("{input:?} of a server without checks has the outputs {outputs:?}")
            })
        })
    }

    fn ignores(&mut self, conn: ConnId, what: &str, input: Input) -> Result<(), String> {
        let outputs = self.deployment.handle(self.now, input);
        quiet(conn, what, &outputs)
    }
}

fn quiet(conn: ConnId, what: &str, outputs: &Outputs) -> Result<(), String> {
    if outputs.is_empty() {
        Ok(())
    } else {
        Err(format!("unrequested answer on {conn:?}: {what} has the outputs {outputs:?}"))
    }
}
