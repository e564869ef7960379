//! Checks, probes and the connection to a load balancer.

use std::{future::poll_fn, task::Poll, time::Duration};

use sdam_core::{
    deployment::{Input, Timer},
    error::{Error, ErrorKind, Stage},
    hello::{Hello, ping},
    ids::ServerId,
    time::Instant,
};

use super::Scanner;
use crate::monitor::{self, connection::Answer, timer::DeadlineTimer};

impl Scanner {
    /// Checks a server, or continues a suspended check. Returns whether a retry may succeed where
    /// this attempt has failed.
    pub(super) async fn check_server(&mut self, server: ServerId) -> bool {
        let Some(member) = self.members.get_mut(server) else {
            return false;
        };
        if member.is_abandoned() {
            self.lose_connection(server);
        }
        if self.revive_check(server).await {
            let member = self.members.get(server);
            return member.is_some_and(|member| member.wants_retry(&self.shared));
        }
        let member = self.members.get(server);
        if member.is_some_and(|member| !member.connection.is_busy()) {
            self.tell(server, Input::CheckRequested { server });
            self.due(server);
        }
        let mut timer = DeadlineTimer::default();
        let mut begun = false;
        loop {
            let Some(member) = self.members.get_mut(server) else {
                return false;
            };
            if begun && !member.connection.is_busy() {
                return member.wants_retry(&self.shared);
            }
            // If the last check was less than 500 ms ago, this one begins at its deadline.
            begun |= member.connection.is_busy();
            let deadline = member.deadline(&self.shared);
            let answer = monitor::answer(
                &*self.shared.io.clock,
                &mut member.connection,
                deadline,
                &mut timer,
            )
            .await;
            self.answer(server, answer);
        }
    }

    /// Processes the result of a check that an earlier call left suspended. Returns whether that
    /// ended the check. A check past its deadline without an answer is abandoned: silence while
    /// nothing was polled is no evidence against the server.
    async fn revive_check(&mut self, server: ServerId) -> bool {
        let now = self.now();
        let Some(member) = self.members.get_mut(server) else {
            return false;
        };
        let deadline = member.deadline(&self.shared);
        if !member.connection.is_busy() || deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        let answer = poll_fn(|cx| {
            Poll::Ready(match member.connection.poll(cx) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            })
        })
        .await;
        let silent = match &answer {
            Some(Answer::Failed { error, .. }) => error.is_timeout(),
            Some(_) => false,
            None => true,
        };
        if silent {
            self.tell(server, Input::Abandoned { server });
            return false;
        }
        self.answer(server, answer);
        let member = self.members.get(server);
        member.is_none_or(|member| !member.connection.is_busy())
    }

    /// Passes the connection's result to the check; `None` means that the deadline has passed.
    fn answer(&mut self, server: ServerId, answer: Option<Answer>) {
        let Some(answer) = answer else {
            return self.due(server);
        };
        let now = self.now();
        let Some(member) = self.members.get_mut(server) else {
            return;
        };
        if let Answer::Reply(_) = &answer {
            member.used = now;
        }
        if let Some(conn) = member.conn {
            self.tell(server, answer.parsed(conn));
        }
    }

    fn due(&mut self, server: ServerId) {
        let timer = Timer::Server(server);
        let wanted = false;
        self.tell(server, Input::Due { timer, wanted });
    }

    /// Sends `ping` on the server's connection, or continues to wait for the reply to one. Any
    /// reply shows that the connection is alive; without one the server is marked Unknown.
    pub(super) async fn probe(&mut self, server: ServerId) -> bool {
        let deadline = self.reply_deadline();
        let ping = ping(self.shared.options.server_api.as_ref());
        let Some(member) = self.members.get_mut(server) else {
            return false;
        };
        if !member.connection.is_busy() {
            member.connection.command(ping, deadline);
        }
        let error = match monitor::answer(
            &*self.shared.io.clock,
            &mut member.connection,
            deadline,
            &mut DeadlineTimer::default(),
        )
        .await
        {
            Some(Answer::Reply(_) | Answer::Connected) => {
                member.used = self.shared.now();
                return true;
            }
            Some(Answer::Failed { error, .. }) => error.at(Stage::Operation),
            None => self.too_late(Stage::Operation),
        };
        self.probe_failed(server, error);
        false
    }

    /// Closes a connection that failed its probe, and marks the server Unknown. A load balancer is
    /// never marked Unknown.
    fn probe_failed(&mut self, server: ServerId, error: Error) {
        self.lose_connection(server);
        if !self.is_balancer(server) {
            self.shared.apply_check(server, Err(error), Duration::ZERO);
            self.follow(None);
        }
    }

    /// Closes the connection to `server` between two checks.
    pub(super) fn lose_connection(&mut self, server: ServerId) {
        if let Some(member) = self.members.get_mut(server) {
            member.disconnect();
            if let Some(conn) = member.conn {
                self.tell(server, Input::ConnectionLost { conn });
            }
        }
    }

    /// Opens the one connection to a load balancer. Its errors do not change the topology (Load
    /// Balancers: "Error handling").
    pub(super) async fn open_balanced(&mut self, server: ServerId) -> Result<(), Error> {
        let outcome = self.greet_balancer(server).await;
        if let (Err(_), Some(member)) = (&outcome, self.members.get_mut(server)) {
            member.disconnect();
        }
        outcome
    }

    async fn greet_balancer(&mut self, server: ServerId) -> Result<(), Error> {
        let deadline = self.reply_deadline();
        let shared = &self.shared;
        let clock = &*shared.io.clock;
        let member = self.members.get_mut(server).ok_or_else(gone)?;
        // An attempt that an earlier call left suspended is not continued.
        member.disconnect();
        shared.connect(&member.server, &mut member.connection, deadline);
        let mut timer = DeadlineTimer::default();
        match monitor::answer(clock, &mut member.connection, deadline, &mut timer).await {
            Some(Answer::Failed { error, .. }) => return Err(error),
            None => return Err(self.too_late(Stage::Connect)),
            Some(_) => {}
        }
        let deadline = self.reply_deadline();
        let member = self.members.get_mut(server).ok_or_else(gone)?;
        member.connection.send(shared.hello_request(), deadline);
        let answer = monitor::answer(clock, &mut member.connection, deadline, &mut timer).await;
        let reply = match answer {
            Some(Answer::Reply(reply)) => reply.message,
            Some(Answer::Failed { error, .. }) => return Err(error),
            Some(Answer::Connected) | None => return Err(self.too_late(Stage::Hello)),
        };
        let hello = Hello::parse(reply.body())?;
        member.service = Some(hello.load_balanced_service()?);
        member.max_wire_version = hello.wire_versions.max;
        member.used = shared.now();
        // The previous connection is uncounted first.
        if let Some(before) = member.counted.take() {
            shared.apply_service_connection_closed(&before);
        }
        let generation = shared.generation(server, None).unwrap_or_default();
        member.counted = shared.apply_handshake(server, generation, reply.body())?;
        self.follow(None);
        Ok(())
    }

    /// Returns the deadline of a reply to a request that is sent now.
    pub(super) fn reply_deadline(&self) -> Option<Instant> {
        let limit = self.shared.config.connect_timeout?;
        Some(self.now() + limit)
    }

    fn too_late(&self, stage: Stage) -> Error {
        let limit = self.shared.config.connect_timeout.unwrap_or_default();
        Error::new(
            ErrorKind::Timeout,
            stage,
            format!("no answer within {limit:?}"),
        )
    }

    pub(super) fn is_balancer(&self, server: ServerId) -> bool {
        self.shared.options.load_balanced && self.members.get(server).is_some()
    }

    /// Returns whether the connection to `server` is open and usable.
    pub(super) fn is_connected(&mut self, server: ServerId) -> bool {
        let member = self.members.get_mut(server);
        member.is_some_and(super::member::Member::is_connected)
    }

    /// Returns the reason why there is no connection to `server`.
    pub(super) fn connection_error(&self, server: ServerId) -> Error {
        let snapshot = self.shared.published.load();
        let description = snapshot.description.server_by_id(server);
        match description.and_then(|server| server.error.as_ref()) {
            Some(error) => error.clone(),
            None => gone(),
        }
    }
}

fn gone() -> Error {
    Error::new(
        ErrorKind::Internal,
        Stage::Connect,
        "the server has left the topology",
    )
}
