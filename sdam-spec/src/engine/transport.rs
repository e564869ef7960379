//! Scripted servers.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::channel::oneshot;
use sdam_core::{address::ServerAddress, error::Stage, time::Instant};
use sdam_transport::{
    Connection, Transport, TransportError, async_trait,
    wire::{OpCode, OpMsg, OpReply, WireError, WireMessage},
};

/// A transport without a network: connections open at once, and each request waits for a manual
/// answer. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct ScriptedTransport {
    desk: Arc<Mutex<Desk>>,
}

#[derive(Debug, Default)]
struct Desk {
    /// Whether connections wait to be admitted, too.
    slow: bool,
    requests: Vec<Request>,
    /// The number of open connections.
    connections: usize,
}

/// A request that waits for an answer.
struct Request {
    address: ServerAddress,
    /// The sent message; `None` for a connection request.
    message: Option<WireMessage>,
    answer: oneshot::Sender<Result<Option<WireMessage>, TransportError>>,
}

impl ScriptedTransport {
    /// Creates a transport whose connections wait until they are [`admit`](Self::admit)ted, too.
    pub fn slow() -> Self {
        let transport = Self::default();
        transport.lock().slow = true;
        transport
    }

    /// Returns the number of requests that wait for an answer of the server at `address`.
    pub fn requests(&self, address: &ServerAddress) -> usize {
        let mut desk = self.lock();
        desk.forget_cancelled();
        let is_meant =
            |request: &&Request| request.message.is_some() && request.address == *address;
        desk.requests.iter().filter(is_meant).count()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.lock().connections
    }

    /// Opens the waiting connection to `address`.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn admit(&self, address: &ServerAddress) -> Result<(), String> {
        self.take(address, false)?.give(Ok(None))
    }

    /// Answers the waiting request to `address`: with the BSON document `reply`, or by breaking
    /// the connection.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn answer(&self, address: &ServerAddress, reply: Option<&[u8]>) -> Result<(), String> {
        let request = self.take(address, true)?;
        let answer = match (reply, &request.message) {
            (Some(reply), Some(message)) => Ok(Some(
                encode(message, reply).map_err(|error| error.to_string())?,
            )),
            _ => Err(TransportError::network(Stage::Hello, "the script says so")),
        };
        request.give(answer)
    }

    fn take(&self, address: &ServerAddress, connected: bool) -> Result<Request, String> {
        let mut desk = self.lock();
        desk.forget_cancelled();
        let is_meant = |request: &Request| {
            request.message.is_some() == connected && request.address == *address
        };
        let index = desk.requests.iter().position(is_meant);
        let index = index.ok_or_else(|| format!("nobody waits for {address}"))?;
        Ok(desk.requests.remove(index))
    }

    async fn ask(
        &self,
        address: &ServerAddress,
        message: Option<WireMessage>,
    ) -> Result<Option<WireMessage>, TransportError> {
        let (answer, answered) = oneshot::channel();
        self.lock().requests.push(Request {
            address: address.clone(),
            message,
            answer,
        });
        answered.await.unwrap_or_else(|_| {
            Err(TransportError::network(
                Stage::Connect,
                "the script has ended",
            ))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    /// Removes requests whose callers were dropped.
    fn forget_cancelled(&mut self) {
        self.requests
            .retain(|request| !request.answer.is_canceled());
    }
}

impl Request {
    fn give(self, answer: Result<Option<WireMessage>, TransportError>) -> Result<(), String> {
        let address = self.address;
        let gone = |_| format!("the answer of {address} came too late");
        self.answer.send(answer).map_err(gone)
    }
}

/// Encodes the reply to `request` with the document `body`.
pub(crate) fn encode(request: &WireMessage, body: &[u8]) -> Result<WireMessage, WireError> {
    let (request_id, response_to) = (1, request.request_id());
    if request.op_code() == OpCode::Query {
        let flags = OpReply::AWAIT_CAPABLE;
        return OpReply {
            request_id,
            response_to,
            flags,
            body,
        }
        .encode();
    }
    OpMsg {
        request_id,
        response_to,
        body,
        ..OpMsg::default()
    }
    .encode()
}

#[async_trait]
impl Transport for ScriptedTransport {
    async fn connect(
        &self,
        target: &ServerAddress,
        _deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, TransportError> {
        let slow = self.lock().slow;
        if slow {
            self.ask(target, None).await?;
        }
        self.lock().connections += 1;
        Ok(Box::new(ScriptedConnection {
            transport: self.clone(),
            address: target.clone(),
            sent: None,
        }))
    }
}

#[derive(Debug)]
struct ScriptedConnection {
    transport: ScriptedTransport,
    address: ServerAddress,
    sent: Option<WireMessage>,
}

#[async_trait]
impl Connection for ScriptedConnection {
    async fn send(&mut self, message: WireMessage) -> Result<(), TransportError> {
        self.sent = Some(message);
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, TransportError> {
        let silence = || TransportError::protocol(Stage::Hello, "nothing was asked");
        let request = self.sent.take().ok_or_else(silence)?;
        let answer = self.transport.ask(&self.address, Some(request)).await?;
        answer.ok_or_else(silence)
    }
}

impl Drop for ScriptedConnection {
    fn drop(&mut self) {
        self.transport.lock().connections -= 1;
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("address", &self.address)
            .field("connected", &self.message.is_some())
            .finish_non_exhaustive()
    }
}
