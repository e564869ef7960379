//! A connection that sends requests and reads replies as OP_MSG.

use std::{
    io::{self, Read, Write},
    net::ToSocketAddrs,
};

use mio::{Interest, Registry, Token, net::TcpStream};
use sdam_core::{
    address::ServerAddress,
    deployment::{ConnId, Input, Output},
    error::{Error, ErrorKind, Stage},
    hello::HelloReply,
    time::Instant,
};

const OP_MSG: i32 = 2013;
/// The request flag that allows the server to send several replies.
const EXHAUST_ALLOWED: i32 = 1 << 16;
/// The reply flag that announces another reply, for which no request is needed.
const MORE_TO_COME: i32 = 2;
/// The number of bytes in a message before its document.
const HEADER: usize = 21;
/// The maximum length of a message that this client reads.
const LIMIT: usize = 48_000_000;

/// A connection, and the answer that it is waiting for.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) conn: ConnId,
    pub(crate) token: Token,
    stream: io::Result<TcpStream>,
    awaits: Option<Stage>,
    sent: Instant,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

enum Answer {
    Connected,
    /// A document, and whether another reply follows.
    Reply(Vec<u8>, bool),
}

impl Link {
    /// Begins to connect. If this fails, the error becomes the connection's answer.
    pub(crate) fn open(
        conn: ConnId,
        token: Token,
        address: Option<&ServerAddress>,
        registry: &Registry,
    ) -> Self {
        let connect = || {
            let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
            // This waits for the name server, which a production client would not do.
            let place = address.as_str().to_socket_addrs()?.next();
            let mut stream = TcpStream::connect(place.ok_or(io::ErrorKind::AddrNotAvailable)?)?;
            registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
            Ok(stream)
        };
        Self {
            conn,
            token,
            stream: connect(),
            awaits: Some(Stage::Connect),
            sent: Instant::EPOCH,
            unsent: Vec::new(),
            received: Vec::new(),
        }
    }

    /// Makes the connection expect a reply. Queues a request first, unless the server sends its
    /// next reply without one.
    pub(crate) fn ask(&mut self, output: &Output, now: Instant) {
        self.awaits = Some(Stage::Hello);
        self.sent = now;
        if let Output::Send { request, .. } = output {
            let body = request.encode();
            let length = i32::try_from(HEADER + body.len()).unwrap_or(i32::MAX);
            let flags = if request.exhaust_allowed { EXHAUST_ALLOWED } else { 0 };
            for number in [length, 1, 0, OP_MSG, flags] {
                self.unsent.extend(number.to_le_bytes());
            }
            self.unsent.push(0);
            self.unsent.extend(body);
        }
    }

    /// Returns the outstanding answer if it has arrived.
    pub(crate) fn advance(&mut self, now: Instant) -> Option<Input> {
        let stage = self.awaits?;
        let (conn, at) = (self.conn, now);
        let input = match self.answer(stage) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => {
                let error = Error::new(ErrorKind::Network, stage, error.to_string());
                Input::Failed { conn, at, error }
            }
            Ok(Answer::Connected) => Input::Connected { conn },
            Ok(Answer::Reply(document, more_to_come)) => Input::Reply {
                conn,
                sent: self.sent,
                at,
                reply: HelloReply::parse(document),
                more_to_come,
            },
        };
        self.awaits = None;
        Some(input)
    }

    fn answer(&mut self, stage: Stage) -> io::Result<Answer> {
        let stream = self
            .stream
            .as_mut()
            .map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        if stage == Stage::Connect {
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            return match stream.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                peer => peer.map(|_| Answer::Connected),
            };
        }
        while !self.unsent.is_empty() {
            let written = stream.write(&self.unsent)?;
            self.unsent.drain(..written);
        }
        let mut buffer = [0; 16_384];
        loop {
            if let Some(reply) = take_reply(&mut self.received)? {
                return Ok(reply);
            }
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.received.extend(buffer.iter().take(read)),
            }
        }
    }
}

/// Takes the first message out of `received`, if it is complete.
fn take_reply(received: &mut Vec<u8>) -> io::Result<Option<Answer>> {
    let number = |place: usize| {
        let bytes = received.get(place..place + 4)?.try_into().ok()?;
        Some(i32::from_le_bytes(bytes))
    };
    let (Some(length), Some(opcode), Some(flags)) = (number(0), number(12), number(16)) else {
        return Ok(None);
    };
    let length = usize::try_from(length).unwrap_or_default();
    if opcode != OP_MSG || !(HEADER..=LIMIT).contains(&length) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a reply"));
    }
    if received.len() < length {
        return Ok(None);
    }
    let document = received.drain(..length).skip(HEADER).collect();
    Ok(Some(Answer::Reply(document, flags & MORE_TO_COME != 0)))
}
