//! Inputs that the deployment must ignore.

use sdam_core::{
    deployment::{ConnId, Input, Timer},
    error::{Error, ErrorKind, ErrorOutcome, Stage},
    ids::{Generation, ServerId},
    report::ErrorReport,
};

use crate::{oracle::ensure, start::Call, watch::Connection, world::World};

impl World {
    /// Checks that the deployment ignores unrequested answers, answers on closed connections, and
    /// inputs for removed servers.
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
                self.check_gone(conn.server)?;
            }
        }
        ensure(self.key() == before, || {
            format!("answers on the closed connections {gone:?} have an effect")
        })
    }

    /// Checks that each kind of answer on a connection (connected, reply, error) is ignored.
    fn check_ignored(
        &mut self,
        conn: ConnId,
        [connected, reply, failed]: [bool; 3],
    ) -> Result<(), String> {
        let at = self.now;
        let error = || Error::new(ErrorKind::Network, Stage::Hello, "late");
        if connected {
            self.ignores(&Input::Connected { conn })?;
        }
        if reply {
            let (sent, reply, more_to_come) = (at, Err(error()).into(), true);
            self.ignores(&Input::Reply { conn, sent, at, reply, more_to_come })?;
        }
        if failed {
            self.ignores(&Input::Failed { conn, at, error: error() })?;
        }
        Ok(())
    }

    fn check_gone(&mut self, server: ServerId) -> Result<(), String> {
        self.check_unwatched(server)?;
        let error = ErrorReport::new(Generation::FIRST, Error::auth("late"));
        let (outcome, outputs) = self.deployment.handle_error(self.now, server, &error);
        ensure(outcome == ErrorOutcome::UnknownServer && outputs.is_empty(), || {
            format!("server {server} has left, and its error is {outcome:?}: {outputs:?}")
        })
    }

    /// Checks that inputs about checks are ignored for a server that is not monitored.
    pub(crate) fn check_unwatched(&mut self, server: ServerId) -> Result<(), String> {
        let timer = Timer::Server(server);
        self.ignores(&Input::Due { timer, wanted: true })?;
        self.ignores(&Input::CheckRequested { server })?;
        self.ignores(&Input::Deserted { server })
    }

    fn ignores(&mut self, input: &Input) -> Result<(), String> {
        let outputs = self.deployment.handle(self.now, input.clone());
        ensure(outputs.is_empty(), || format!("unrequested {input:?} has the outputs {outputs:?}"))
    }
}
