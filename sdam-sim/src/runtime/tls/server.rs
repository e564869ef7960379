//! The server's end of a connection that may be encrypted.

use super::{TlsFault, TlsMode, TlsSession, TlsState};
use crate::MemberId;

/// The TLS layer of one connection, between the network and the server process.
#[derive(Debug, Default)]
pub(in super::super) struct Endpoint {
    state: State,
    /// Bytes that are kept until the server process answers, or until the header of a record is
    /// complete.
    incoming: Vec<u8>,
}

#[derive(Debug, Default)]
enum State {
    /// The client has not sent enough bytes to tell whether it uses TLS.
    #[default]
    New,
    Plain,
    /// The TLS library handles all bytes. The fault, if any, applies to the handshake.
    Encrypted(Box<dyn TlsSession>, Option<TlsFault>),
    /// The connection has ended. Bytes are ignored.
    Ended,
}

/// The server's settings for a handshake.
#[derive(Debug)]
pub(in super::super) struct Terms<'t> {
    pub(in super::super) tls: &'t TlsState,
    pub(in super::super) member: MemberId,
    pub(in super::super) host: &'t str,
    /// True if the server process answers. If not, handshakes wait.
    pub(in super::super) answers: bool,
}

/// The result of processing bytes from the client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Received {
    /// Bytes to send to the client.
    pub(in super::super) send: Vec<u8>,
    /// Plain text for the server's process.
    pub(in super::super) plain: Vec<u8>,
    /// True if the connection must then be closed.
    pub(in super::super) close: bool,
}

impl Terms<'_> {
    /// Begins the TLS session of a new connection.
    fn accept(&self) -> Option<Box<dyn TlsSession>> {
        let certificate = self.tls.certificate(self.member, self.host);
        self.tls.acceptor.as_ref()?.accept(self.member, &certificate).ok()
    }
}

impl Endpoint {
    /// Returns whether the handshake is complete or the connection needs none.
    fn is_settled(&self) -> bool {
        match &self.state {
            State::New => false,
            State::Encrypted(session, _) => !session.is_handshaking(),
            State::Plain | State::Ended => true,
        }
    }

    /// Returns whether received bytes are kept until the server process answers.
    pub(in super::super) fn is_waiting(&self) -> bool {
        !self.is_settled() && !self.incoming.is_empty()
    }

    /// Processes received bytes.
    pub(in super::super) fn receive(&mut self, terms: &Terms<'_>, bytes: &[u8]) -> Received {
        let mut received = Received::default();
        if let State::Plain = self.state {
            received.plain = bytes.to_vec();
            return received;
        }
        self.incoming.extend(bytes);
        if let State::New = self.state {
            let encrypted = match *self.incoming {
                // A single byte is not enough to distinguish TLS from plain text.
                [] | [20..=23] => return received,
                _ => is_header(&self.incoming),
            };
            let own = terms.tls.servers.get(&terms.member);
            let mode = own.and_then(|own| own.mode).unwrap_or(terms.tls.mode);
            match (encrypted, mode) {
                (false, TlsMode::Disabled | TlsMode::Allowed) => {
                    self.state = State::Plain;
                    received.plain = std::mem::take(&mut self.incoming);
                    return received;
                }
                _ if !terms.answers => {}
                (true, TlsMode::Allowed | TlsMode::Required) => match terms.accept() {
                    Some(session) => {
                        self.state = State::Encrypted(session, own.and_then(|own| own.fault));
                    }
                    None => self.end(&mut received),
                },
                _ => self.end(&mut received),
            }
        }
        if terms.answers || self.is_settled() {
            self.pass_on(&mut received);
        }
        received
    }

    /// Passes the received bytes to the TLS library. If there is a handshake fault, it affects the
    /// library's first answer.
    fn pass_on(&mut self, received: &mut Received) {
        let incoming = std::mem::take(&mut self.incoming);
        let State::Encrypted(session, fault) = &mut self.state else {
            return;
        };
        let plain = session.receive(&incoming);
        let answer = session.outgoing();
        match (*fault, plain) {
            (Some(_), Ok(_)) if answer.is_empty() => {}
            (Some(fault), _) => self.fail(fault, &answer, received),
            (None, plain) => {
                received.send.extend(answer);
                match plain {
                    Ok(plain) => received.plain.extend(plain),
                    Err(_) => self.end(received),
                }
            }
        }
    }

    /// Encrypts plain text from the server process, if necessary, and returns the bytes to send to
    /// the client.
    pub(in super::super) fn seal(&mut self, plain: Vec<u8>) -> Vec<u8> {
        match &mut self.state {
            State::Encrypted(session, _) => {
                session.send(&plain);
                session.outgoing()
            }
            _ => plain,
        }
    }

    /// Applies the handshake fault instead of sending the answer.
    fn fail(&mut self, fault: TlsFault, answer: &[u8], received: &mut Received) {
        received.send = match fault {
            TlsFault::Stall => {
                self.state = State::Ended;
                return;
            }
            TlsFault::Cut => answer[..answer.len() / 2].to_vec(),
            TlsFault::PlainText => b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        };
        self.end(received);
    }

    fn end(&mut self, received: &mut Received) {
        self.state = State::Ended;
        received.close = true;
    }
}

/// Returns whether `bytes` may be the beginning of a TLS record. They must not be empty.
pub(in super::super) fn is_header(bytes: &[u8]) -> bool {
    let max = |index: usize, max: u8| bytes.get(index).is_none_or(|byte| *byte <= max);
    // Check the type, the version, and the length, which is at most 2^14 + 256.
    (20..=23).contains(&bytes[0])
        && bytes.get(1).is_none_or(|major| *major == 3)
        && max(2, 4)
        && max(3, 0x41)
}
