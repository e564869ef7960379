//! The servers' TLS: certificates, requirements and faults. A TLS library does the encryption.

#[cfg(feature = "tls")]
mod rustls;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Debug, io, sync::Arc};

use sdam_core::time::Instant;

#[cfg(feature = "tls")]
pub(super) use self::rustls::rustls;
use super::Shared;
use crate::MemberId;

/// The contents of a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Certificate {
    /// The hosts for which the certificate is valid.
    pub names: Vec<Box<str>>,
    /// The authority that issued the certificate.
    pub issuer: Box<str>,
    /// The first instant at which the certificate is valid.
    pub not_before: Instant,
    /// The last instant at which the certificate is valid.
    pub not_after: Instant,
}

impl Certificate {
    /// The authority that programs trust.
    pub const AUTHORITY: &str = "the simulated authority";

    /// Creates a certificate for `names`, issued by [`AUTHORITY`](Self::AUTHORITY), that never
    /// expires.
    pub fn new<N: Into<Box<str>>>(names: impl IntoIterator<Item = N>) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            issuer: Self::AUTHORITY.into(),
            not_before: Instant::EPOCH,
            not_after: Instant::MAX,
        }
    }

    /// Sets the first and the last instant at which the certificate is valid.
    #[must_use]
    pub fn valid(mut self, not_before: Instant, not_after: Instant) -> Self {
        (self.not_before, self.not_after) = (not_before, not_after);
        self
    }
}

/// The server's policy for TLS and plain text (`tlsMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsMode {
    /// The server accepts plain text, and closes a connection that begins with TLS.
    #[default]
    Disabled,
    /// The server accepts TLS and plain text.
    Allowed,
    /// The server accepts TLS, and closes a connection that begins with plain text.
    Required,
}

/// A fault in a server's TLS handshakes, with its name in scenarios. The fault affects
/// handshakes that begin while it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum TlsFault {
    /// The server does not answer.
    Stall,
    /// The server closes the connection in the middle of its answer.
    Cut,
    /// The server answers in plain text and closes the connection.
    #[strum(serialize = "plain")]
    PlainText,
}

/// Controls the TLS of the simulated servers.
///
/// If the feature `tls` is enabled, rustls encrypts at both ends: the servers present the
/// certificates that are set here, and programs on [`Sim::runtime`](super::Sim::runtime) trust
/// [`Certificate::AUTHORITY`]. If it is disabled, set a TLS library with
/// [`accept_by`](Self::accept_by).
///
/// Each member initially has a certificate for its own host name. If a server's certificate changes
/// or expires, established connections are unaffected.
///
/// ```
/// use std::time::Duration;
///
/// use sdam_core::{address::ServerAddress, options::Options};
/// use sdam_sim::{Blueprint, MemberId, runtime::Sim};
/// use sdam_transport::connect::Transport;
///
/// let host = ServerAddress::new("a", 27017);
/// let sim = Sim::new(42, &Blueprint::standalone());
/// sim.tls().require();
/// assert_eq!(sim.uri(), "mongodb://a:27017/?directConnection=true&tls=true");
///
/// let certificate = sim.tls().certificate(MemberId(0));
/// let (now, hour) = (sim.now(), Duration::from_secs(3600));
/// sim.tls().set_certificate(MemberId(0), certificate.valid(now, now + hour));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TlsServers<'s>(pub(super) &'s Shared);

impl TlsServers<'_> {
    /// Makes all members require TLS.
    pub fn require(&self) {
        self.with(|tls| tls.mode = TlsMode::Required);
    }

    /// Sets whether `member` accepts TLS and plain text on new connections.
    pub fn set_mode(&self, member: MemberId, mode: TlsMode) {
        self.with(|tls| tls.server(member).mode = Some(mode));
    }

    /// Replaces the members' TLS library for all later connections. The modes and faults of the
    /// members still apply.
    ///
    /// The program can use the same library or another one. Set it with
    /// [`Backend::tls`](sdam_transport::runtime::Backend::tls) on the
    /// [runtime](super::Sim::runtime).
    pub fn accept_by(&self, acceptor: impl TlsAcceptor) {
        self.with(|tls| tls.acceptor = Some(Arc::new(acceptor)));
    }

    /// Returns the members' TLS library.
    pub fn acceptor(&self) -> Option<Arc<dyn TlsAcceptor>> {
        self.0.state().network.tls.acceptor.clone()
    }

    /// Returns the certificate that `member` presents.
    pub fn certificate(&self, member: MemberId) -> Certificate {
        let state = self.0.state();
        state.network.tls.certificate(member, state.deployment.member(member).address.host())
    }

    /// Sets the certificate of `member` for new connections.
    pub fn set_certificate(&self, member: MemberId, certificate: Certificate) {
        self.with(|tls| tls.server(member).certificate = Some(certificate));
    }

    /// Gives `member` a certificate for its own name that never expires.
    pub fn renew_certificate(&self, member: MemberId) {
        self.with(|tls| tls.server(member).certificate = None);
    }

    /// Sets the fault in handshakes with `member`; `None` ends it.
    pub fn set_fault(&self, member: MemberId, fault: Option<TlsFault>) {
        self.with(|tls| tls.server(member).fault = fault);
    }

    fn with<T>(self, change: impl FnOnce(&mut TlsState) -> T) {
        change(&mut self.0.state().network.tls);
    }
}

/// The server side of a TLS library. Set it with [`TlsServers::accept_by`].
pub trait TlsAcceptor: Debug + Send + Sync + 'static {
    /// Begins the handshake with a client that has connected to `member`. The server presents
    /// `certificate`.
    ///
    /// # Errors
    ///
    /// If the certificate cannot be created. The connection is then closed.
    fn accept(
        &self,
        member: MemberId,
        certificate: &Certificate,
    ) -> io::Result<Box<dyn TlsSession>>;
}

/// The server's end of a connection.
pub trait TlsSession: Debug + Send {
    /// Processes bytes from the client, in pieces of any length. Returns the decrypted data.
    ///
    /// # Errors
    ///
    /// If the client is refused or sends invalid data. Before the connection is closed, the bytes
    /// that [`outgoing`](Self::outgoing) then returns, such as an alert, are sent.
    fn receive(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>>;

    /// Encrypts data from the server. [`outgoing`](Self::outgoing) then returns the encrypted
    /// bytes. Called only after the handshake is complete.
    fn send(&mut self, data: &[u8]);

    /// Takes the bytes to be sent to the client.
    fn outgoing(&mut self) -> Vec<u8>;

    /// Returns whether the handshake is incomplete.
    fn is_handshaking(&self) -> bool;
}

/// The TLS state of all servers.
#[derive(Debug, Default)]
pub(super) struct TlsState {
    mode: TlsMode,
    servers: BTreeMap<MemberId, Settings>,
    acceptor: Option<Arc<dyn TlsAcceptor>>,
}

/// The settings of one server.
#[derive(Debug, Default)]
struct Settings {
    mode: Option<TlsMode>,
    certificate: Option<Certificate>,
    fault: Option<TlsFault>,
}

impl TlsState {
    /// Returns whether the members require TLS.
    pub(super) fn is_required(&self) -> bool {
        self.mode == TlsMode::Required
    }

    /// Ends all faults. Certificates are kept.
    pub(super) fn heal(&mut self) {
        let servers = self.servers.values_mut();
        servers.for_each(|server| server.fault = None);
    }

    /// Returns the certificate of `member`, whose host name is `host`.
    fn certificate(&self, member: MemberId, host: &str) -> Certificate {
        let own = self.servers.get(&member).and_then(|own| own.certificate.clone());
        own.unwrap_or_else(|| Certificate::new([host]))
    }

    fn server(&mut self, member: MemberId) -> &mut Settings {
        self.servers.entry(member).or_default()
    }
}

/// The TLS layer of one connection, between the network and the server process.
#[derive(Debug, Default)]
pub(super) struct Endpoint {
    state: Encryption,
    /// Bytes that are kept until the server process answers, or until the header of a record is
    /// complete.
    incoming: Vec<u8>,
}

#[derive(Debug, Default)]
enum Encryption {
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
pub(super) struct Terms<'t> {
    pub(super) tls: &'t TlsState,
    pub(super) member: MemberId,
    pub(super) host: &'t str,
    /// True if the server process answers. If not, handshakes wait.
    pub(super) answers: bool,
}

/// The result of processing bytes from the client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Bytes to send to the client.
    pub(super) send: Vec<u8>,
    /// Plain text for the server's process.
    pub(super) plain: Vec<u8>,
    /// True if the connection must then be closed.
    pub(super) close: bool,
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
            Encryption::New => false,
            Encryption::Encrypted(session, _) => !session.is_handshaking(),
            Encryption::Plain | Encryption::Ended => true,
        }
    }

    /// Returns whether received bytes are kept until the server process answers.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_settled() && !self.incoming.is_empty()
    }

    /// Processes received bytes.
    pub(super) fn receive(&mut self, terms: &Terms<'_>, bytes: &[u8]) -> Received {
        let mut received = Received::default();
        if let Encryption::Plain = self.state {
            received.plain = bytes.to_vec();
            return received;
        }
        self.incoming.extend(bytes);
        if let Encryption::New = self.state {
            let encrypted = match *self.incoming {
                // A single byte is not enough to distinguish TLS from plain text.
                [] | [20..=23] => return received,
                _ => is_header(&self.incoming),
            };
            let own = terms.tls.servers.get(&terms.member);
            let mode = own.and_then(|own| own.mode).unwrap_or(terms.tls.mode);
            match (encrypted, mode) {
                (false, TlsMode::Disabled | TlsMode::Allowed) => {
                    self.state = Encryption::Plain;
                    received.plain = std::mem::take(&mut self.incoming);
                    return received;
                }
                _ if !terms.answers => {}
                (true, TlsMode::Allowed | TlsMode::Required) => match terms.accept() {
                    Some(session) => {
                        self.state = Encryption::Encrypted(session, own.and_then(|own| own.fault));
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
        let Encryption::Encrypted(session, fault) = &mut self.state else {
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
    pub(super) fn seal(&mut self, plain: Vec<u8>) -> Vec<u8> {
        match &mut self.state {
            Encryption::Encrypted(session, _) => {
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
                self.state = Encryption::Ended;
                return;
            }
            TlsFault::Cut => answer[..answer.len() / 2].to_vec(),
            TlsFault::PlainText => b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        };
        self.end(received);
    }

    fn end(&mut self, received: &mut Received) {
        self.state = Encryption::Ended;
        received.close = true;
    }
}

/// Returns whether `bytes` may be the beginning of a TLS record. They must not be empty.
pub(super) fn is_header(bytes: &[u8]) -> bool {
    let max = |index: usize, max: u8| bytes.get(index).is_none_or(|byte| *byte <= max);
    // Check the type, the version, and the length, which is at most 2^14 + 256.
    (20..=23).contains(&bytes[0])
        && bytes.get(1).is_none_or(|major| *major == 3)
        && max(2, 4)
        && max(3, 0x41)
}
