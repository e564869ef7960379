//! Checks, probes and the connection to a load balancer.

use std::{future::poll_fn, task::Poll};

use sdam_core::{
    error::{ErrorKind, ServerError, Stage},
    hello::{Hello, HelloRequest, ping},
    ids::{ObjectId, ServerId},
    machine::{Input, RecordedInput},
    monitor::{MonitorInput, MonitorMachine},
    time::Instant,
    topology::TopologyType,
};
use sdam_transport::clock::Clock;

use super::{Member, ScanTopology};
use crate::{alarm::Alarm, link::Answer, service::ServiceConnection};

impl ScanTopology {
    /// Checks a server, or continues a suspended check. Returns whether a retry may succeed where
    /// this attempt has failed.
    pub(super) async fn check_server(&mut self, server: ServerId) -> bool {
        let Some(member) = self.members.get_mut(&server) else {
            return false;
        };
        if member.is_abandoned() {
            member.disconnect();
            self.tell_monitor(server, MonitorInput::Disconnected);
        }
        if self.revive_check(server).await {
            let now = self.now();
            let member = self.members.get(&server);
            return member.is_some_and(|member| member.wants_retry(now));
        }
        // The monitor ignores this while a check is in progress.
        self.tell_monitor(server, MonitorInput::CheckRequested);
        let mut alarm = Alarm::default();
        let mut begun = false;
        loop {
            let now = self.now();
            let Some(member) = self.members.get_mut(&server) else {
                return false;
            };
            if begun && !member.link.is_busy() {
                return member.wants_retry(now);
            }
            // If the last check was less than 500 ms ago, the monitor begins at its deadline.
            begun |= member.link.is_busy();
            let deadline = member.monitor.as_ref().and_then(MonitorMachine::deadline);
            let answer = wait(&*self.io.clock, member, deadline, &mut alarm).await;
            self.answer(server, answer);
        }
    }

    /// Processes the result of a check that an earlier call left suspended. Returns whether that
    /// ended the check. A check past its deadline without an answer is abandoned: silence while
    /// nothing was polled is no evidence against the server.
    async fn revive_check(&mut self, server: ServerId) -> bool {
        let now = self.now();
        let Some(member) = self.members.get_mut(&server) else {
            return false;
        };
        let deadline = member.monitor.as_ref().and_then(MonitorMachine::deadline);
        if !member.link.is_busy() || deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        let answer = poll_fn(|cx| {
            Poll::Ready(match member.link.poll(cx) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            })
        })
        .await;
        let silent = match &answer {
            Some(Answer::Failed(error)) => error.is_timeout(),
            Some(_) => false,
            None => true,
        };
        if silent {
            self.tell_monitor(server, MonitorInput::Abandon);
            return false;
        }
        self.answer(server, answer);
        let member = self.members.get(&server);
        member.is_none_or(|member| !member.link.is_busy())
    }

    /// Passes the link's result to the monitor; `None` means that the deadline has passed.
    fn answer(&mut self, server: ServerId, answer: Option<Answer>) {
        match answer {
            None => self.tell_monitor(server, MonitorInput::DeadlineReached),
            Some(Answer::Connected) => self.tell_monitor(server, MonitorInput::Connected),
            Some(Answer::Failed(error)) => self.tell_monitor(server, MonitorInput::Failed(error)),
            Some(Answer::Reply {
                message,
                more_to_come,
            }) => {
                let now = self.now();
                if let Some(member) = self.members.get_mut(&server) {
                    member.used = now;
                }
                let bytes = message.body();
                let input = MonitorInput::Reply {
                    bytes,
                    more_to_come,
                };
                self.tell_monitor(server, input);
            }
        }
    }

    /// Sends `ping` on the server's connection, or continues to wait for the reply to one. Any
    /// reply shows that the connection is alive; without one the server is marked Unknown.
    pub(super) async fn probe(&mut self, server: ServerId) -> bool {
        let deadline = self.reply_deadline();
        let ping = ping(self.options.server_api.as_ref());
        let Some(member) = self.members.get_mut(&server) else {
            return false;
        };
        if !member.link.is_busy() {
            member.link.command(ping, deadline);
        }
        let error = match wait(&*self.io.clock, member, deadline, &mut Alarm::default()).await {
            Some(Answer::Reply { .. } | Answer::Connected) => {
                member.used = self.io.clock.now();
                return true;
            }
            Some(Answer::Failed(mut error)) => {
                error.stage = Stage::Operation;
                error
            }
            None => self.too_late(Stage::Operation),
        };
        self.lose(server, error);
        false
    }

    /// Closes a connection that failed its probe, and marks the server Unknown. A load balancer is
    /// never marked Unknown.
    fn lose(&mut self, server: ServerId, error: ServerError) {
        if let Some(member) = self.members.get_mut(&server) {
            member.disconnect();
            self.tell_monitor(server, MonitorInput::Disconnected);
        }
        if !self.is_balancer(server) {
            let outcome = Err(error);
            let input = Input::Checked {
                server,
                outcome,
                rtt: None,
            };
            self.apply(input, None);
        }
    }

    /// Opens the one connection to a load balancer. Its errors do not change the topology (Load
    /// Balancers: "Error handling").
    pub(super) async fn open_balanced(&mut self, server: ServerId) -> Result<(), ServerError> {
        let outcome = self.greet_balancer(server).await;
        if let (Err(_), Some(member)) = (&outcome, self.members.get_mut(&server)) {
            member.disconnect();
        }
        outcome
    }

    async fn greet_balancer(&mut self, server: ServerId) -> Result<(), ServerError> {
        let deadline = self.reply_deadline();
        let description = self.machine.description();
        let (Some(description), Some(member)) = (
            description.server_by_id(server),
            self.members.get_mut(&server),
        ) else {
            return Err(gone());
        };
        // An attempt that an earlier call left suspended is not continued.
        member.disconnect();
        member
            .link
            .connect(&self.io, &self.options, &description.address, deadline);
        let mut alarm = Alarm::default();
        match wait(&*self.io.clock, member, deadline, &mut alarm).await {
            Some(Answer::Failed(error)) => return Err(error),
            None => return Err(self.too_late(Stage::Connect)),
            Some(_) => {}
        }
        let deadline = self.reply_deadline();
        let Some(member) = self.members.get_mut(&server) else {
            return Err(gone());
        };
        let request = HelloRequest::handshake(
            self.introduction.handshake(),
            self.config.server_api.clone(),
            self.config.handshake_opcode,
        );
        member.link.send(request, deadline);
        let reply = match wait(&*self.io.clock, member, deadline, &mut alarm).await {
            Some(Answer::Reply { message, .. }) => message,
            Some(Answer::Failed(error)) => return Err(error),
            Some(Answer::Connected) | None => return Err(self.too_late(Stage::Hello)),
        };
        let hello = Hello::parse(reply.body())?;
        let service = hello.load_balanced_service()?;
        member.service = Some(service);
        member.max_wire_version = hello.wire_versions.max;
        member.used = self.io.clock.now();
        self.count(server, service, hello, reply.body());
        Ok(())
    }

    /// Counts a new connection to a load balancer in place of the previous one.
    fn count(&mut self, server: ServerId, service: ObjectId, hello: Hello, reply: &[u8]) {
        let member = self.members.get_mut(&server);
        if let Some(before) = member.and_then(|member| member.counted.take()) {
            let input = Input::ServiceConnectionClosed {
                server,
                service: before.service,
                generation: before.generation,
            };
            self.apply(input, None);
        }
        let generation = self.generation(server, None).unwrap_or_default();
        let input = Input::Handshake {
            server,
            generation,
            hello,
            // The RTT of a load balancer is not measured.
            rtt: None,
        };
        self.apply_as(input, None, |_| {
            Some(RecordedInput::Handshake {
                server,
                generation,
                reply: reply.into(),
                rtt: None,
            })
        });
        let generation = self.generation(server, Some(service));
        let member = self.members.get_mut(&server);
        if let (Some(generation), Some(member)) = (generation, member) {
            member.counted = Some(ServiceConnection {
                server,
                service,
                generation,
            });
        }
    }

    /// Returns the deadline of a reply to a request that is sent now.
    fn reply_deadline(&self) -> Option<Instant> {
        let limit = self.config.connect_timeout?;
        Some(self.now() + limit)
    }

    fn too_late(&self, stage: Stage) -> ServerError {
        let limit = self.config.connect_timeout.unwrap_or_default();
        ServerError::new(
            ErrorKind::Timeout,
            stage,
            format!("no answer within {limit:?}"),
        )
    }

    pub(super) fn is_balancer(&self, server: ServerId) -> bool {
        self.machine.description().topology_type() == TopologyType::LoadBalanced
            && self.members.contains_key(&server)
    }

    /// Returns whether the connection to `server` is open and usable.
    pub(super) fn is_connected(&mut self, server: ServerId) -> bool {
        let member = self.members.get_mut(&server);
        member.is_some_and(|member| !member.is_abandoned() && member.link.wire().is_some())
    }

    /// Returns the reason why there is no connection to `server`.
    pub(super) fn connection_error(&self, server: ServerId) -> ServerError {
        let description = self.machine.description().server_by_id(server);
        match description.and_then(|server| server.error.as_deref()) {
            Some(error) => error.clone(),
            None => gone(),
        }
    }
}

fn gone() -> ServerError {
    ServerError::new(
        ErrorKind::Internal,
        Stage::Connect,
        "the server has left the topology",
    )
}

/// Waits for the link's answer or the deadline (`None`). A late answer that is there counts.
async fn wait(
    clock: &dyn Clock,
    member: &mut Member,
    deadline: Option<Instant>,
    alarm: &mut Alarm,
) -> Option<Answer> {
    poll_fn(|cx| {
        if let Poll::Ready(answer) = member.link.poll(cx) {
            return Poll::Ready(Some(answer));
        }
        alarm.poll(clock, deadline, cx).map(|()| None)
    })
    .await
}
