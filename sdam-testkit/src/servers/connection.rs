use std::{
    future::{pending, poll_fn},
    sync::Arc,
    task::Poll,
};

use bson::RawDocument;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    time::Instant,
};
use sdam_transport::{
    async_trait,
    clock::Clock,
    connect::Connection,
    error,
    wire::{OpCode, OpMsg, OpReply, WireError, WireMessage},
};

use super::{Servers, Wake};
use crate::server::{Request, Server};

/// An open connection to one of the servers.
#[derive(Debug)]
pub(super) struct ServerConnection {
    servers: Servers,
    address: ServerAddress,
    process: u64,
    number: i64,
    deadline: Option<Instant>,
    /// The outstanding request, and the time at which it was sent.
    request: Option<(WireMessage, Instant)>,
}

impl ServerConnection {
    pub(super) fn new(servers: Servers, address: ServerAddress, process: u64, number: i64) -> Self {
        Self { servers, address, process, number, deadline: None, request: None }
    }

    /// Remains pending for one poll each time that [`Servers::stall`] was called.
    async fn stall(&self) {
        poll_fn(|_| {
            let mut state = self.servers.lock();
            if state.stalls == 0 {
                return Poll::Ready(());
            }
            state.stalls -= 1;
            self.servers.clock.hold_next_timer();
            Poll::Pending
        })
        .await;
    }

    /// Returns the server. Fails if the server was restarted after the connection was opened, or if
    /// it now refuses connections.
    fn server(&self) -> Result<Server, Error> {
        let mut state = self.servers.lock();
        let now = self.servers.clock.now();
        let port = state.port(&self.address);
        if port.process != self.process {
            return Err(broken("reset by peer"));
        }
        if let Some(refusal) = &port.server.refusal {
            port.answered.push(now);
            return Err(broken(refusal));
        }
        Ok(port.server.clone())
    }

    /// Waits until `instant`. If the deadline is earlier, waits until the deadline and fails.
    async fn wait_until(&self, instant: Instant) -> Result<(), Error> {
        let clock = &self.servers.clock;
        let end = self.deadline.map_or(instant, |deadline| deadline.min(instant));
        if clock.is_jumping() {
            clock.advance_to(end);
        } else if end > clock.now() {
            clock.sleep_until(end).await;
        }
        if end < instant {
            return Err(Error::timeout(Stage::Hello, "no reply"));
        }
        Ok(())
    }

    /// Returns the body of the reply to `request`.
    async fn body(&self, request: &WireMessage, sent: Instant) -> Result<Vec<u8>, Error> {
        let server = loop {
            let server = self.server()?;
            if !server.silent {
                break server;
            }
            if self.servers.clock.is_jumping() && self.deadline.is_some() {
                self.wait_until(Instant::MAX).await?;
            }
            if let Wake::Answered(reply) = self.servers.wait(&self.address, true).await {
                self.note_answer();
                return reply.ok_or_else(|| broken("the test says so"));
            }
        };
        self.wait_until(sent + server.delay).await?;
        self.note_answer();
        let request = Request {
            command: command(request),
            body: request.body().to_vec(),
            connection: self.number,
            now: self.servers.clock.now(),
        };
        let reply = match &*request.command {
            "hello" | "isMaster" => Arc::clone(&server.hello),
            _ => Arc::clone(&server.other),
        };
        reply(&request).ok_or_else(|| broken("the test says so"))
    }

    fn note_answer(&self) {
        let now = self.servers.clock.now();
        self.servers.lock().port(&self.address).answered.push(now);
    }
}

#[async_trait]
impl Connection for ServerConnection {
    async fn send(&mut self, message: WireMessage) -> Result<(), Error> {
        let mut what = command(&message);
        if is_awaited(&message) {
            what.push_str(" awaited");
        }
        self.servers.lock().note(&self.address, &what);
        self.request = Some((message, self.servers.clock.now()));
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, Error> {
        self.stall().await;
        let Some((request, sent)) = self.request.take() else {
            return pending().await;
        };
        let body = self.body(&request, sent).await?;
        reply_to(&request, &body).map_err(|error| error::from_wire(Stage::Hello, error))
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.servers.lock().open -= 1;
    }
}

fn broken(message: &str) -> Error {
    Error::network(Stage::Hello, message)
}

/// Returns the name of the command in `message`; empty if there is none.
fn command(message: &WireMessage) -> String {
    let body = RawDocument::from_bytes(message.body()).ok();
    let first = body.and_then(|body| body.iter().next()?.ok());
    first.map_or_else(String::new, |(name, _)| name.to_string())
}

/// Returns whether the server may delay the reply to `message`.
fn is_awaited(message: &WireMessage) -> bool {
    let body = RawDocument::from_bytes(message.body());
    let version = body.and_then(|body| body.get("topologyVersion"));
    message.exhaust_allowed() || matches!(version, Ok(Some(_)))
}

/// Encodes the reply to `request` with the BSON document `body`.
///
/// # Errors
///
/// If `body` is too long for a message.
pub fn reply_to(request: &WireMessage, body: &[u8]) -> Result<WireMessage, WireError> {
    let (request_id, response_to) = (1, request.request_id());
    if request.op_code() == OpCode::Query {
        let flags = OpReply::AWAIT_CAPABLE;
        return OpReply { request_id, response_to, flags, body }.encode();
    }
    OpMsg { request_id, response_to, body, ..OpMsg::default() }.encode()
}
