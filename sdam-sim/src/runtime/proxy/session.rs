//! One connection to a SOCKS5 proxy (RFC 1928, RFC 1929).

use std::net::{Ipv4Addr, Ipv6Addr};

use sdam_core::address::ServerAddress;

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Message {
    /// The authentication methods that the client offers.
    Greeting(Vec<u8>),
    /// The user name and password.
    Login(Vec<u8>, Vec<u8>),
    /// The server to connect to; `None` for any other request.
    Request(Option<ServerAddress>),
}

/// The messages at the beginning of a connection to a proxy, as sent by the client: a greeting,
/// possibly a login, and a request.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Opening {
    received: Vec<u8>,
    greeted: bool,
}

/// The error for invalid bytes from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Malformed;

impl Opening {
    /// Adds received bytes.
    pub(in super::super) fn push(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
    }

    /// Returns the bytes that follow the last message.
    pub(in super::super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Takes the next message. Returns `None` if it is incomplete.
    pub(in super::super) fn next(&mut self) -> Result<Option<Message>, Malformed> {
        let parsed = match (self.greeted, self.received.first()) {
            (_, None) => return Ok(None),
            (false, Some(5)) => greeting(&self.received),
            (true, Some(1)) => login(&self.received),
            (true, Some(5)) => request(&self.received),
            _ => return Err(Malformed),
        };
        let Some((message, length)) = parsed else {
            return Ok(None);
        };
        self.greeted = true;
        self.received.drain(..length);
        Ok(Some(message))
    }
}

/// Splits off the first `length` bytes. Returns `None` if there are fewer.
fn split(bytes: &[u8], length: u8) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::from(length))
}

fn greeting(bytes: &[u8]) -> Option<(Message, usize)> {
    let (methods, _) = split(bytes.get(2..)?, bytes[1])?;
    Some((Message::Greeting(methods.to_vec()), 2 + methods.len()))
}

fn login(bytes: &[u8]) -> Option<(Message, usize)> {
    let (user, rest) = split(bytes.get(2..)?, bytes[1])?;
    let (length, rest) = rest.split_first()?;
    let (password, _) = split(rest, *length)?;
    let length = 3 + user.len() + password.len();
    Some((Message::Login(user.to_vec(), password.to_vec()), length))
}

fn request(bytes: &[u8]) -> Option<(Message, usize)> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let (host, rest) = match head[3] {
        1 => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (Ipv4Addr::from(*ip).to_string(), rest)
        }
        4 => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (Ipv6Addr::from(*ip).to_string(), rest)
        }
        _ => {
            let (length, rest) = rest.split_first()?;
            let (name, rest) = split(rest, *length)?;
            (String::from_utf8_lossy(name).into_owned(), rest)
        }
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let connects = head[1] == 1 && matches!(head[3], 1 | 3 | 4);
    let target = connects.then(|| ServerAddress::new(&host, u16::from_be_bytes(*port)));
    Some((Message::Request(target), bytes.len() - rest.len()))
}

/// The proxy's end of a connection that has not reached a server yet.
#[derive(Debug, Default)]
pub(in super::super) struct Session {
    opening: Opening,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Opening,
    /// The client has authenticated or does not have to.
    Admitted,
    /// The server never answers, or the connection is about to close.
    Silent,
    Tunnel,
}

/// The next step of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Step {
    Reply(Vec<u8>),
    /// Connect to a server, and then call [`Session::connected`].
    Connect(ServerAddress),
    /// Send the reply and close the connection.
    Refuse(Vec<u8>),
    /// Forward these bytes to the server.
    Forward(Vec<u8>),
}

/// The reason why a proxy refuses a connection (the field "REP" in RFC 1928).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Refusal {
    Ruleset = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
}

impl Refusal {
    fn reply(self) -> Vec<u8> {
        reply(self as u8)
    }
}

fn reply(code: u8) -> Vec<u8> {
    vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

impl Session {
    /// Processes received bytes and returns the next steps. `login` is the required user name and
    /// password.
    pub(in super::super) fn receive(
        &mut self,
        bytes: &[u8],
        login: Option<&(Box<str>, Box<str>)>,
    ) -> Vec<Step> {
        match self.stage {
            Stage::Tunnel => return vec![Step::Forward(bytes.to_vec())],
            Stage::Silent => return Vec::new(),
            Stage::Opening | Stage::Admitted => self.opening.push(bytes),
        }
        let mut steps = Vec::new();
        loop {
            let step = match self.opening.next() {
                Ok(None) => return steps,
                Ok(Some(message)) => self.answer(message, login),
                Err(Malformed) => Step::Refuse(Vec::new()),
            };
            let last = matches!(step, Step::Refuse(_) | Step::Connect(_));
            steps.push(step);
            if last {
                self.stage = Stage::Silent;
                return steps;
            }
        }
    }

    fn answer(&mut self, message: Message, login: Option<&(Box<str>, Box<str>)>) -> Step {
        match (message, login, self.stage) {
            (Message::Greeting(methods), login, _) => {
                let method = if login.is_some() { 2 } else { 0 };
                if !methods.contains(&method) {
                    return Step::Refuse(vec![5, 0xff]);
                }
                if login.is_none() {
                    self.stage = Stage::Admitted;
                }
                Step::Reply(vec![5, method])
            }
            (Message::Login(user, password), Some((own_user, own_password)), _) => {
                if user != own_user.as_bytes() || password != own_password.as_bytes() {
                    return Step::Refuse(vec![1, 1]);
                }
                self.stage = Stage::Admitted;
                Step::Reply(vec![1, 0])
            }
            (Message::Request(Some(target)), _, Stage::Admitted) => Step::Connect(target),
            (Message::Request(None), _, Stage::Admitted) => {
                Step::Refuse(Refusal::CommandNotSupported.reply())
            }
            (Message::Login(..) | Message::Request(_), ..) => Step::Refuse(Vec::new()),
        }
    }

    /// Returns the next steps once [`Step::Connect`] has succeeded or failed.
    pub(in super::super) fn connected(&mut self, outcome: Result<(), Refusal>) -> Vec<Step> {
        if let Err(refusal) = outcome {
            return vec![Step::Refuse(refusal.reply())];
        }
        self.stage = Stage::Tunnel;
        let mut steps = vec![Step::Reply(reply(0))];
        let early = self.opening.rest();
        if !early.is_empty() {
            steps.push(Step::Forward(early));
        }
        steps
    }
}
