//! The client side of a SOCKS5 handshake: bytes in, bytes out (RFC 1928, RFC 1929).
//!
//! Implemented here because the SOCKS5 crates depend on a runtime or on many other crates.

use std::{fmt, net::IpAddr};

use sdam_core::{address::ServerAddress, error::ErrorKind};

/// A handshake that requests a connection (`CONNECT`) to one target.
pub(super) struct Handshake<'h> {
    credential: Option<(&'h str, &'h str)>,
    request: Vec<u8>,
    state: State,
}

/// The next step of the handshake.
pub(super) enum Step {
    /// Send these bytes, possibly none, and receive exactly this number of bytes, at least one.
    Exchange { send: Vec<u8>, receive: usize },
    /// The connection is open; the next byte comes from the target.
    Done,
}

/// The next bytes to receive.
#[derive(Clone, Copy)]
enum State {
    /// Version and chosen method.
    Method,
    /// Version and status of the authentication.
    Status,
    /// Version and result of the request.
    Result,
    /// A reserved byte, the type of the proxy's own address, and its first byte.
    Bound,
    /// The rest of the proxy's own address.
    Rest,
}

impl<'h> Handshake<'h> {
    /// Creates the handshake for a connection to `target`, and returns its first step.
    pub(super) fn new(
        credential: Option<(&'h str, &'h str)>,
        target: &ServerAddress,
    ) -> Result<(Self, Step), Problem> {
        if let Some((user, password)) = credential {
            let fits = |text: &str| (1..=LONGEST).contains(&text.len());
            if !fits(user) || !fits(password) {
                return Err(Problem::CredentialLength);
            }
        }
        // SOCKS5 Support: "both"
        let greeting = match credential {
            Some(_) => vec![VERSION, 2, NO_AUTHENTICATION, USER_AND_PASSWORD],
            None => vec![VERSION, 1, NO_AUTHENTICATION],
        };
        let handshake = Self {
            credential,
            request: request(target)?,
            state: State::Method,
        };
        let step = Step::Exchange {
            send: greeting,
            receive: 2,
        };
        Ok((handshake, step))
    }

    /// Processes the bytes requested by the last step.
    pub(super) fn next(&mut self, received: &[u8]) -> Result<Step, Problem> {
        match (self.state, received) {
            (State::Method, [VERSION, method]) => self.authenticate(*method),
            // The version is that of RFC 1929, but some proxies send that of RFC 1928.
            (State::Status, [_, SUCCEEDED]) => Ok(self.ask()),
            (State::Status, [_, _]) => Err(Problem::Rejected),
            (State::Result, [VERSION, SUCCEEDED]) => Ok(self.receive(State::Bound, 3)),
            (State::Result, [VERSION, code]) => Err(self.refused(*code)),
            (State::Bound, [_, kind, first]) => {
                let rest = match *kind {
                    IPV4 => 3,
                    IPV6 => 15,
                    NAME => usize::from(*first),
                    other => return Err(Problem::BoundAddress(other)),
                };
                Ok(self.receive(State::Rest, rest + PORT_LENGTH))
            }
            (State::Rest, _) => Ok(Step::Done),
            _ => Err(Problem::not_socks(received)),
        }
    }

    /// Returns a description of the current part of the handshake.
    pub(super) fn action(&self) -> &'static str {
        match self.state {
            State::Method => "the greeting",
            State::Status => "authentication",
            State::Result | State::Bound | State::Rest => "the request to connect",
        }
    }

    fn authenticate(&mut self, method: u8) -> Result<Step, Problem> {
        match (method, self.credential) {
            (NO_AUTHENTICATION, _) => Ok(self.ask()),
            (USER_AND_PASSWORD, Some((user, password))) => {
                let mut send = vec![AUTHENTICATION_VERSION];
                put(&mut send, user);
                put(&mut send, password);
                self.state = State::Status;
                Ok(Step::Exchange { send, receive: 2 })
            }
            (NO_ACCEPTABLE_METHOD, None) => Err(Problem::CredentialRequired),
            (NO_ACCEPTABLE_METHOD, Some(_)) => Err(Problem::NoMethod),
            (other, _) => Err(Problem::MethodNotOffered(other)),
        }
    }

    fn ask(&mut self) -> Step {
        self.state = State::Result;
        Step::Exchange {
            send: self.request.clone(),
            receive: 2,
        }
    }

    fn receive(&mut self, state: State, receive: usize) -> Step {
        self.state = state;
        Step::Exchange {
            send: Vec::new(),
            receive,
        }
    }

    fn refused(&self, code: u8) -> Problem {
        match code {
            ADDRESS_TYPE_NOT_SUPPORTED => Problem::AddressType(match self.request.get(3) {
                Some(&IPV4) => "IPv4 addresses",
                Some(&IPV6) => "IPv6 addresses",
                _ => "host names",
            }),
            code => Problem::Refused(code),
        }
    }
}

/// The reason why a handshake failed.
///
/// `{}` prints the cause, and the remedy if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The user name or password is empty or longer than the protocol allows.
    CredentialLength,
    /// The host name is longer than the protocol allows.
    NameLength,
    /// The target is a Unix domain socket.
    UnixSocket,
    /// The peer does not speak SOCKS5.
    NotSocks(Peer),
    /// The proxy requires authentication, but there is no credential.
    CredentialRequired,
    /// The proxy accepts neither of the two methods.
    NoMethod,
    /// The proxy chose a method that was not offered.
    MethodNotOffered(u8),
    /// The proxy rejected the credential.
    Rejected,
    /// The proxy refused the request with this code.
    Refused(u8),
    /// The proxy does not support addresses of this type.
    AddressType(&'static str),
    /// The proxy's own address has an unknown type.
    BoundAddress(u8),
}

/// A peer that is not a SOCKS5 server, identified by the first byte of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// `H` of `HTTP/1.1 400 Bad Request`.
    Http,
    /// A SOCKS4 reply, which begins with 0.
    Socks4,
    Other(u8),
}

impl Problem {
    fn not_socks(received: &[u8]) -> Self {
        Self::NotSocks(match received.first().copied().unwrap_or_default() {
            b'H' => Peer::Http,
            0 => Peer::Socks4,
            other => Peer::Other(other),
        })
    }

    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Self::NotSocks(_) | Self::MethodNotOffered(_) | Self::BoundAddress(_) => {
                ErrorKind::Protocol
            }
            _ => ErrorKind::Network,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::CredentialLength => {
                "proxyUsername and proxyPassword have to be 1 to 255 bytes long"
            }
            Self::NameLength => "a host name may be 255 bytes long",
            Self::UnixSocket => "no proxy connects to a Unix domain socket",
            Self::NotSocks(Peer::Http) => {
                "this is no SOCKS5 server, it answers as an HTTP server or HTTP proxy"
            }
            Self::NotSocks(Peer::Socks4) => "this is no SOCKS5 server, it answers as SOCKS4",
            Self::NotSocks(Peer::Other(byte)) => {
                return write!(
                    f,
                    "this is no SOCKS5 server, its answer begins with the byte {byte}"
                );
            }
            Self::CredentialRequired => {
                "the proxy requires authentication: set proxyUsername and proxyPassword"
            }
            Self::NoMethod => "the proxy does not authenticate by user name and password",
            Self::MethodNotOffered(method) => {
                return write!(
                    f,
                    "the proxy chose the authentication method {method}, which was not offered"
                );
            }
            Self::Rejected => "the proxy rejects proxyUsername and proxyPassword",
            Self::Refused(1) => "the proxy reports a general failure",
            Self::Refused(2) => "the proxy's rules do not allow this connection",
            Self::Refused(3) => "the network cannot be reached from the proxy",
            Self::Refused(4) => {
                "the host cannot be reached from the proxy, or its name cannot be resolved there"
            }
            Self::Refused(5) => "the server refuses connections from the proxy",
            Self::Refused(6) => "the TTL of a packet expired between the proxy and the server",
            Self::Refused(7) => "the proxy does not support the command CONNECT",
            Self::Refused(code) => {
                return write!(f, "the proxy refuses with the unknown code {code}");
            }
            Self::AddressType(addresses) => {
                return write!(f, "the proxy does not support {addresses}");
            }
            Self::BoundAddress(kind) => {
                return write!(f, "the proxy's reply has an address of unknown type {kind}");
            }
        };
        f.write_str(text)
    }
}

/// Returns the request for a connection to `target`.
fn request(target: &ServerAddress) -> Result<Vec<u8>, Problem> {
    let port = target.port().ok_or(Problem::UnixSocket)?;
    let mut request = vec![VERSION, CONNECT, 0];
    match target.host().parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        Err(_) if target.host().len() > LONGEST => return Err(Problem::NameLength),
        Err(_) => {
            request.push(NAME);
            put(&mut request, target.host());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

/// Appends the length and the bytes of `text`, which is at most [`LONGEST`] bytes long.
fn put(message: &mut Vec<u8>, text: &str) {
    message.push(text.len() as u8);
    message.extend(text.as_bytes());
}

const VERSION: u8 = 5;
const AUTHENTICATION_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const SUCCEEDED: u8 = 0;
const ADDRESS_TYPE_NOT_SUPPORTED: u8 = 8;
/// The length of a port, in bytes.
const PORT_LENGTH: usize = 2;
/// The length of the longest text in a message, in bytes.
const LONGEST: usize = 255;
