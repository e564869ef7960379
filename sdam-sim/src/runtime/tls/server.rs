//! The server's end of a connection that may be encrypted.

use sdam_core::time::Instant;

use super::{
    Certificate, Flaw, ServerTls, TlsFault, TlsMode,
    handshake::{Alert, ClientHello, Finished, ServerHello},
    library::Accepted,
    record::{self, Cipher, Content, Keys},
};

/// The TLS of one connection, between the network and the server's process.
#[derive(Debug, Default)]
pub(in super::super) struct Endpoint {
    state: State,
    /// Bytes that do not form a whole record yet.
    incoming: Vec<u8>,
}

#[derive(Debug, Default)]
enum State {
    /// The client has not sent enough to tell whether it uses TLS.
    #[default]
    New,
    Plain,
    /// The server waits for the client's last handshake message.
    Negotiating(Cipher, Cipher),
    /// Data is read and sent.
    Open(Cipher, Cipher),
    /// A library handles all bytes.
    Library(Accepted),
    /// Bytes are ignored.
    Ended,
}

/// Settings that affect a handshake.
#[derive(Debug)]
pub(in super::super) struct Terms {
    pub(in super::super) now: Instant,
    pub(in super::super) tls: ServerTls,
    /// A number that is different for each handshake.
    pub(in super::super) nonce: u64,
    /// True if the server process answers; otherwise handshakes wait.
    pub(in super::super) answers: bool,
}

/// The consequences of bytes from the client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Received {
    /// Bytes to send to the client.
    pub(in super::super) send: Vec<u8>,
    /// Plain text for the server's process.
    pub(in super::super) plain: Vec<u8>,
    /// True to close the connection afterwards.
    pub(in super::super) close: bool,
}

impl Endpoint {
    /// Returns whether bytes can be read without [`Terms`].
    pub(in super::super) fn is_settled(&self) -> bool {
        match &self.state {
            State::New | State::Negotiating(..) => false,
            State::Library(Accepted { session, .. }) => !session.is_handshaking(),
            State::Plain | State::Open(..) | State::Ended => true,
        }
    }

    /// Returns whether bytes wait for the server process.
    pub(in super::super) fn is_waiting(&self) -> bool {
        !self.is_settled() && !self.incoming.is_empty()
    }

    /// Processes received bytes until the connection is settled.
    pub(in super::super) fn negotiate(&mut self, terms: &Terms, bytes: &[u8]) -> Received {
        self.incoming.extend(bytes);
        let mut received = Received::default();
        if let State::New = self.state {
            let encrypted = match *self.incoming {
                // One byte is not enough to decide.
                [] | [20..=23] => return received,
                _ => record::is_header(&self.incoming),
            };
            match (encrypted, terms.tls.mode) {
                (false, TlsMode::Disabled | TlsMode::Allowed) => {
                    self.state = State::Plain;
                    received.plain = std::mem::take(&mut self.incoming);
                    return received;
                }
                (true, TlsMode::Disabled) | (false, TlsMode::Required) if terms.answers => {
                    self.end(&mut received);
                }
                _ if terms.answers => {
                    if let Some(accepted) = terms.tls.accept() {
                        self.state = State::Library(accepted);
                    }
                }
                _ => {}
            }
        }
        if terms.answers {
            self.read_records(Some(terms), &mut received);
        }
        received
    }

    /// Processes received bytes of a settled connection.
    pub(in super::super) fn read(&mut self, bytes: &[u8]) -> Received {
        let mut received = Received::default();
        if let State::Plain = self.state {
            received.plain = bytes.to_vec();
        } else {
            self.incoming.extend(bytes);
            self.read_records(None, &mut received);
        }
        received
    }

    fn read_records(&mut self, terms: Option<&Terms>, received: &mut Received) {
        if let State::Library(_) = self.state {
            return self.ask_library(received);
        }
        while !matches!(self.state, State::Ended) {
            match record::take(&mut self.incoming) {
                Ok(None) => return,
                Ok(Some((Content::Data, mut payload))) if self.is_settled() => {
                    if let State::Open(to_server, _) = &mut self.state {
                        to_server.apply(&mut payload);
                        received.plain.extend(payload);
                    }
                }
                Ok(Some((Content::Handshake, payload))) => match terms {
                    Some(terms) => self.shake_hands(terms, &payload, received),
                    None => self.end(received),
                },
                Ok(Some(_)) | Err(_) => self.end(received),
            }
        }
        self.incoming.clear();
    }

    /// Passes the received bytes to the library. A fault of the handshake affects its first answer.
    fn ask_library(&mut self, received: &mut Received) {
        let State::Library(Accepted { session, fault }) = &mut self.state else {
            return;
        };
        let plain = session.receive(&std::mem::take(&mut self.incoming));
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

    /// Returns the bytes to send for plain text from the server process.
    pub(in super::super) fn seal(&mut self, plain: Vec<u8>) -> Vec<u8> {
        match &mut self.state {
            State::Open(_, to_client) => to_client.seal(&plain),
            State::Library(Accepted { session, .. }) => {
                session.send(&plain);
                session.outgoing()
            }
            _ => plain,
        }
    }

    fn shake_hands(&mut self, terms: &Terms, payload: &[u8], received: &mut Received) {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::New => match ClientHello::decode(payload) {
                Some(hello) => self.greet(terms, &hello, received),
                None => self.end(received),
            },
            State::Negotiating(to_server, to_client) => {
                match Finished::decode(payload).map(|finished| refusal(terms, &finished)) {
                    Some(None) => self.state = State::Open(to_server, to_client),
                    refusal => {
                        let alert = refusal.flatten().map(Alert::encode);
                        received.send.extend(alert.unwrap_or_default());
                        self.end(received);
                    }
                }
            }
            State::Plain | State::Open(..) | State::Library(_) | State::Ended => {
                self.end(received);
            }
        }
    }

    /// Answers a client's hello, or fails like the server.
    fn greet(&mut self, terms: &Terms, hello: &ClientHello, received: &mut Received) {
        let answer = ServerHello {
            nonce: terms.nonce,
            certificate: terms.tls.certificate.clone(),
            demands_certificate: terms.tls.demands_certificate,
        };
        let answer = answer.encode();
        match terms.tls.fault {
            None => {
                let keys = Keys::new(hello.nonce, terms.nonce);
                self.state = State::Negotiating(keys.to_server, keys.to_client);
                received.send = answer;
            }
            Some(fault) => self.fail(fault, &answer, received),
        }
    }

    /// Applies the fault instead of sending the answer.
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

/// Returns the reason why the server rejects the client.
fn refusal(terms: &Terms, finished: &Finished) -> Option<Alert> {
    if !terms.tls.demands_certificate {
        return None;
    }
    let Some(certificate) = &finished.certificate else {
        return Some(Alert::CertificateRequired);
    };
    match certificate.verify(terms.now, Certificate::AUTHORITY) {
        Ok(()) => None,
        Err(Flaw::UnknownIssuer(_)) => Some(Alert::UnknownAuthority),
        Err(_) => Some(Alert::CertificateExpired),
    }
}
