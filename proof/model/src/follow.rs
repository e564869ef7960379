//! Performs the outputs of the deployment.

use std::{sync::Arc, time::Duration};

use sdam_core::{
    deployment::{ConnId, Output, Role},
    error::ErrorKind,
    event::EventKind,
    ids::ServerId,
    topology::TopologyDescription,
};

use crate::{
    oracle::{self, ensure},
    start::{Call, Purpose},
    watch::{Phase, Watch},
    world::World,
};

impl World {
    /// Performs an output. The connections that the output closes are added to `gone`.
    pub(crate) fn follow(
        &mut self,
        call: Call,
        known: bool,
        before: &TopologyDescription,
        output: &Output,
        gone: &mut Vec<ConnId>,
    ) -> Result<(), String> {
        let (now, start) = (self.now, self.start);
        let limit = |awaited: bool| {
            let wait = if awaited { start.heartbeat() } else { Duration::ZERO };
            start.limit().map(|limit| now + limit + wait)
        };
        match output {
            Output::OpenServer { server, monitored, .. } => {
                let is_new = self.watches.last().is_none_or(|last| last.id < *server);
                ensure(is_new, || format!("the id {server} is used twice"))?;
                ensure(*monitored != start.balanced, || {
                    format!("D-12: server {server} is monitored: {monitored}")
                })?;
                self.watches.push(Watch::new(*server, *monitored));
            }
            Output::CloseServer { server } => {
                let own = self.own(*server)?;
                let ended =
                    !own.checking && own.connections().map(|own| own.phase) == [Phase::Closed; 3];
                ensure(ended, || format!("server {server} is closed before its checks: {own:?}"))?;
                gone.extend(own.connections().map(|own| own.id));
                self.watches.retain(|own| own.id != *server);
            }
            Output::Connect { conn, deadline } => {
                ensure(*deadline == limit(false), || {
                    format!("F-10: {conn:?} has until {deadline:?} to connect")
                })?;
                let own = self.own(conn.server)?;
                own.sends(*conn, now, (Phase::Connecting, false), *deadline)?;
            }
            Output::Send { conn, request, deadline } => {
                let awaited = request.awaiting.is_some();
                ensure(!awaited || conn.role == Role::Check, || {
                    format!("G-7: {conn:?} waits for a change")
                })?;
                ensure(*deadline == limit(awaited), || {
                    format!("F-10, F-11: {conn:?} has until {deadline:?} for a reply")
                })?;
                let own = self.own(conn.server)?;
                own.sends(*conn, now, (Phase::Asked, awaited), *deadline)?;
            }
            Output::Read { conn, deadline } => {
                ensure(*deadline == limit(true), || {
                    format!("F-11: {conn:?} has until {deadline:?} for the next reply")
                })?;
                let own = self.own(conn.server)?;
                own.sends(*conn, now, (Phase::Asked, true), *deadline)?;
            }
            Output::Disconnect { conn } => {
                let own = self.own(conn.server)?.connection(conn.role);
                ensure(own.id == *conn && own.phase != Phase::Closed, || {
                    format!("{conn:?} is closed while the connection is {own:?}")
                })?;
                own.phase = Phase::Closed;
                gone.push(*conn);
            }
            Output::Wake { server } => {
                self.own(*server)?;
            }
            Output::PoolReady { server } => {
                let after = Arc::clone(&self.published);
                // Only a load balancer's pool becomes ready without a check.
                let about = call.about.or(start.balanced.then_some(*server));
                oracle::ready(&after, about, *server, &mut self.own(*server)?.pool)?;
            }
            // Clearing a service does not change the pool's own generation.
            Output::PoolClear { .. } if start.balanced => {}
            Output::PoolClear { server, clear } => {
                let after = Arc::clone(&self.published);
                oracle::clear(&after, *server, clear, &mut self.own(*server)?.pool)?;
            }
            Output::Emit(event) => self.note(call, known, before, event)?,
            Output::Publish(_) => {}
            Output::LookUp { .. } | Output::Choose | Output::Probe { .. } | Output::Finish(_) => {
                self.require(call, output)?;
            }
        }
        Ok(())
    }

    fn note(
        &mut self,
        call: Call,
        known: bool,
        before: &TopologyDescription,
        event: &EventKind,
    ) -> Result<(), String> {
        let now = self.now;
        match event {
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                let own = self.own(heartbeat.server)?;
                own.begins(call, now, heartbeat.awaited)
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
                let own = self.own(heartbeat.server)?;
                own.streamed &= call.streams;
                own.ends(now, call.streams)
            }
            EventKind::ServerHeartbeatFailed { heartbeat, failure, .. } => {
                let lost = matches!(failure.kind(), ErrorKind::Network | ErrorKind::Timeout);
                let own = self.own(heartbeat.server)?;
                own.streamed &= failure.kind() != ErrorKind::Internal;
                // When the client made a request, the check was already past its deadline, so the
                // check starts over.
                let abandoned =
                    call.purpose == Purpose::Request && failure.kind() == ErrorKind::Cancelled;
                own.ends(now, lost && known || abandoned)
            }
            EventKind::ServerSuspected { server, .. } => {
                let others = self.watches.iter().filter(|own| own.id != *server);
                let witness = others.filter_map(|own| own.answered).max();
                let (heartbeat, stalled) = (self.start.heartbeat(), self.stalled);
                let is_convicted = self.may_convict(*server);
                let own = self.own(*server)?;
                if !is_convicted {
                    own.has_been_silent(now, heartbeat, (witness, stalled))?;
                }
                own.suspect(now)
            }
            EventKind::ServerSuspicionEnded { server, answered, .. } => {
                let own = self.own(*server)?;
                let was_suspected = own.suspected.take().is_some();
                let ends = was_suspected && (!answered || own.answered == Some(now));
                ensure(ends, || format!("server {server} is not suspected, or has not answered"))
            }
            EventKind::ServerDescriptionChanged { new, .. } if new.error.is_some() => {
                let error = new.error.as_ref().map(ToString::to_string);
                self.judge_error(new.id, &error.unwrap_or_default())
            }
            event => {
                // The last events of a server are published before the server is closed.
                let server = event.address().and_then(|address| before.server(address));
                let own = server.filter(|server| self.published.server_by_id(server.id).is_some());
                own.map_or(Ok(()), |server| self.own(server.id).map(drop))
            }
        }
    }

    /// Returns the test double of the server. Fails if the server is not open.
    fn own(&mut self, server: ServerId) -> Result<&mut Watch, String> {
        let own = self.watches.iter_mut().find(|own| own.id == server);
        own.ok_or_else(|| format!("there is an output for server {server}, which is not open"))
    }
}
