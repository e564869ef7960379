//! The servers' TLS: certificates, requirements and faults. A TLS library does the encryption.

mod library;
#[cfg(feature = "tls")]
mod rustls;
mod server;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use sdam_core::time::Instant;

pub use self::library::{TlsAcceptor, TlsSession};
#[cfg(feature = "tls")]
pub(super) use self::rustls::rustls;
pub(super) use self::server::{Endpoint, Terms, is_header};
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

    /// Sets the hosts for which the certificate is valid.
    #[must_use]
    pub fn for_names<N: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the issuing authority.
    #[must_use]
    pub fn issued_by(mut self, authority: impl Into<Box<str>>) -> Self {
        self.issuer = authority.into();
        self
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
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
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

impl TlsFault {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
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
