//! Canned servers: each answers every check at once with the same answer until it is changed.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use bson::{RawArrayBuf, rawdoc};
use sdam_core::{address::ServerAddress, error::Stage, time::Instant};
use sdam_transport::{
    Clock, Connection, Transport, TransportError, async_trait,
    wire::{WireError, WireMessage},
};

use super::transport::encode;

/// The result of a check of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is answered with this BSON document.
    Reply(Vec<u8>),
    /// Connections are refused with this message.
    Refuse(String),
    /// No answer until another one is set.
    Silence,
}

impl Answer {
    /// Builds the reply of a member of a replica set `rs` of `hosts`.
    pub fn member(hosts: &[ServerAddress], is_primary: bool) -> Self {
        let mut members = RawArrayBuf::new();
        for host in hosts {
            members.push(host.as_str());
        }
        let reply = rawdoc! {
            "ok": 1, "ismaster": is_primary, "secondary": !is_primary, "setName": "rs",
            "hosts": members, "minWireVersion": 0, "maxWireVersion": 17,
        };
        Self::Reply(reply.into_bytes())
    }

    /// Builds the reply of a mongos.
    pub fn mongos() -> Self {
        let reply = rawdoc! {
            "ok": 1, "ismaster": true, "msg": "isdbgrid", "minWireVersion": 0, "maxWireVersion": 17,
        };
        Self::Reply(reply.into_bytes())
    }
}

/// A transport to servers with canned answers; clones share the state.
///
/// A server without an answer is silent.
#[derive(Clone, Debug)]
pub struct CannedTransport {
    clock: Arc<dyn Clock>,
    servers: Arc<Mutex<BTreeMap<ServerAddress, Server>>>,
}

#[derive(Debug)]
struct Server {
    answer: Answer,
    /// The end times of its checks.
    checks: Vec<Instant>,
    waiting: Vec<Waker>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            answer: Answer::Silence,
            checks: Vec::new(),
            waiting: Vec::new(),
        }
    }
}

impl CannedTransport {
    /// Creates a transport whose servers are all silent; `clock` is read for the times of checks.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            servers: Arc::default(),
        }
    }

    /// Sets the answer of the server at `address` from now on, also for requests that are waiting.
    pub fn set(&self, address: &ServerAddress, answer: Answer) {
        let mut servers = self.lock();
        let server = servers.entry(address.clone()).or_default();
        server.answer = answer;
        let waiting = std::mem::take(&mut server.waiting);
        drop(servers);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Returns the times at which the server at `address` answered or refused a check.
    pub fn checks(&self, address: &ServerAddress) -> Vec<Instant> {
        let servers = self.lock();
        let server = servers.get(address);
        server.map_or_else(Vec::new, |server| server.checks.clone())
    }

    /// Waits for an answer of `address` that `digest` accepts.
    async fn answer<T>(
        &self,
        address: &ServerAddress,
        digest: impl Fn(&Answer) -> Option<Digested<T>>,
    ) -> T {
        poll_fn(|cx| {
            let mut servers = self.lock();
            let server = servers.entry(address.clone()).or_default();
            let Some(digested) = digest(&server.answer) else {
                server.waiting.push(cx.waker().clone());
                return Poll::Pending;
            };
            if digested.is_check {
                server.checks.push(self.clock.now());
            }
            Poll::Ready(digested.value)
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerAddress, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of an answer that a caller uses.
struct Digested<T> {
    value: T,
    /// Whether this ends a check.
    is_check: bool,
}

fn refused(stage: Stage, words: &str) -> TransportError {
    TransportError::network(stage, words)
}

#[async_trait]
impl Transport for CannedTransport {
    async fn connect(
        &self,
        target: &ServerAddress,
        _deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, TransportError> {
        let opened = |answer: &Answer| {
            Some(match answer {
                Answer::Refuse(words) => Digested {
                    value: Err(refused(Stage::Connect, words)),
                    is_check: true,
                },
                Answer::Reply(_) | Answer::Silence => Digested {
                    value: Ok(()),
                    is_check: false,
                },
            })
        };
        self.answer(target, opened).await?;
        Ok(Box::new(CannedConnection {
            transport: self.clone(),
            address: target.clone(),
            sent: None,
        }))
    }
}

#[derive(Debug)]
struct CannedConnection {
    transport: CannedTransport,
    address: ServerAddress,
    sent: Option<WireMessage>,
}

#[async_trait]
impl Connection for CannedConnection {
    async fn send(&mut self, message: WireMessage) -> Result<(), TransportError> {
        self.sent = Some(message);
        Ok(())
    }

    async fn recv(&mut self) -> Result<WireMessage, TransportError> {
        let nothing = || TransportError::protocol(Stage::Hello, "nothing was asked");
        let request = self.sent.take().ok_or_else(nothing)?;
        let replied = |answer: &Answer| {
            let value = match answer {
                Answer::Reply(body) => encode(&request, body)
                    .map_err(|error: WireError| TransportError::from_wire(Stage::Hello, error)),
                Answer::Refuse(words) => Err(refused(Stage::Hello, words)),
                Answer::Silence => return None,
            };
            Some(Digested {
                value,
                is_check: true,
            })
        };
        self.transport.answer(&self.address, replied).await
    }
}
