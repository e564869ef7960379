//! The checks, in the order in which they are made and shown.

/// A check: a question that the doctor answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Check {
    Uri,
    DnsSrv,
    DnsAddr,
    Tcp,
    TlsHandshake,
    TlsVerify,
    Hello,
    TopoKind,
    TopoMembers,
    TopoPrimary,
    Clock,
    Lag,
    Rtt,
    Auth,
    Select,
    Write,
}

impl Check {
    /// All checks.
    pub(super) const ALL: [Self; 16] = [
        Self::Uri,
        Self::DnsSrv,
        Self::DnsAddr,
        Self::Tcp,
        Self::TlsHandshake,
        Self::TlsVerify,
        Self::Hello,
        Self::TopoKind,
        Self::TopoMembers,
        Self::TopoPrimary,
        Self::Clock,
        Self::Lag,
        Self::Rtt,
        Self::Auth,
        Self::Select,
        Self::Write,
    ];

    /// Returns the id, which is stable.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Uri => "uri",
            Self::DnsSrv => "dns.srv",
            Self::DnsAddr => "dns.addr",
            Self::Tcp => "tcp",
            Self::TlsHandshake => "tls.handshake",
            Self::TlsVerify => "tls.verify",
            Self::Hello => "hello",
            Self::TopoKind => "topo.kind",
            Self::TopoMembers => "topo.members",
            Self::TopoPrimary => "topo.primary",
            Self::Clock => "clock",
            Self::Lag => "lag",
            Self::Rtt => "rtt",
            Self::Auth => "auth",
            Self::Select => "select",
            Self::Write => "write",
        }
    }

    /// Returns the question that the check answers, in one line.
    pub(super) const fn question(self) -> &'static str {
        match self {
            Self::Uri => "does the connection string mean what it says?",
            Self::DnsSrv => "do the SRV and TXT records exist, and name hosts?",
            Self::DnsAddr => "does each host name have addresses?",
            Self::Tcp => "does each address accept connections?",
            Self::TlsHandshake => "do client and server agree on TLS?",
            Self::TlsVerify => "is each certificate trusted, in time, and for this name?",
            Self::Hello => "does each server answer as MongoDB, in a version for this client?",
            Self::TopoKind => "do the servers belong together, and to the string?",
            Self::TopoMembers => "can each member be reached by the name that the set gives it?",
            Self::TopoPrimary => "is there exactly one primary, and do all members name it?",
            Self::Clock => "do the clocks of the servers and of this machine agree?",
            Self::Lag => "are the secondaries up to date?",
            Self::Rtt => "which members are near enough to be chosen?",
            Self::Auth => "are the credentials accepted?",
            Self::Select => "is there a server for writes, and for the reads of the string?",
            Self::Write => "does a majority acknowledge a write? (only with --write)",
        }
    }

    /// Returns the check with this id.
    pub(super) fn of(id: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|check| check.id() == id);
        found.ok_or_else(|| "there is no such check; --list shows all".to_owned())
    }
}
