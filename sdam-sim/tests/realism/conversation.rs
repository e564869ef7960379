//! A raw connection to a server, and the replies received on it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use bson::Document;
use sdam_transport::wire::{OpCode, OpMsg, OpQuery, WireMessage};

/// The timeout for a reply.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The `maxAwaitTimeMS` of awaitable hellos that are expected to time out.
pub(crate) const AWAIT: Duration = Duration::from_millis(600);

/// The time after which a reply counts as delayed. It is far from both 0 and [`AWAIT`], because
/// servers have coarse clocks and machines may be busy.
const WAITED: Duration = Duration::from_millis(350);

/// The framing of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Msg,
    /// OP_MSG with the flag exhaustAllowed.
    Exhaust,
    /// OP_QUERY to this collection.
    Query(&'static str),
}

/// A reply's timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// The reply came too soon for the server to have waited.
    Immediate,
    /// The reply took about as long as [`AWAIT`], or longer.
    Waited,
}

/// The outcome of waiting for a reply.
#[derive(Clone, Debug)]
pub(crate) enum Observed {
    Reply(Reply),
    Closed,
}

/// A reply, with its framing.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) op_code: OpCode,
    /// The value of the reply's flag `moreToCome`.
    pub(crate) more_to_come: bool,
    /// True if `responseTo` is the id of the last message: the request or, in a stream, the
    /// previous reply.
    pub(crate) answers_last: bool,
    pub(crate) timing: Timing,
    pub(crate) body: Document,
}

pub(crate) struct Conversation {
    stream: TcpStream,
    requests: i32,
    /// The id of the last message sent or received.
    last: i32,
    sent: Instant,
}

impl Conversation {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, requests: 0, last: 0, sent: Instant::now() })
    }

    pub(crate) fn send(&mut self, framing: Framing, body: &Document) {
        self.requests += 1;
        let body = body.to_vec().unwrap();
        let message = match framing {
            Framing::Query(collection) => {
                OpQuery { request_id: self.requests, flags: 0, collection, body: &body }.encode()
            }
            Framing::Msg | Framing::Exhaust => OpMsg {
                request_id: self.requests,
                exhaust_allowed: framing == Framing::Exhaust,
                body: &body,
                ..OpMsg::default()
            }
            .encode(),
        };
        self.last = self.requests;
        self.sent = Instant::now();
        self.stream.write_all(message.unwrap().as_bytes()).expect("the server must take requests");
    }

    pub(crate) fn receive(&mut self) -> Observed {
        match self.read() {
            Ok(bytes) => {
                let elapsed = self.sent.elapsed();
                let message = WireMessage::decode(bytes).expect("replies must be well-formed");
                let answers_last = message.response_to() == self.last;
                self.last = message.request_id();
                self.sent = Instant::now();
                Observed::Reply(Reply {
                    op_code: message.op_code(),
                    more_to_come: message.more_to_come(),
                    answers_last,
                    timing: if elapsed < WAITED { Timing::Immediate } else { Timing::Waited },
                    body: Document::from_reader(message.body()).unwrap(),
                })
            }
            Err(error) => {
                assert!(
                    !matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
                    "no reply within {TIMEOUT:?}"
                );
                Observed::Closed
            }
        }
    }

    /// Sends a command and returns the body of its reply.
    pub(crate) fn call(&mut self, body: &Document) -> Document {
        self.send(Framing::Msg, body);
        self.receive().body()
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        bytes[..4].copy_from_slice(&length);
        self.stream.read_exact(&mut bytes[4..])?;
        Ok(bytes)
    }
}

impl Observed {
    pub(crate) fn body(self) -> Document {
        match self {
            Self::Reply(reply) => reply.body,
            Self::Closed => panic!("the connection was closed"),
        }
    }
}
