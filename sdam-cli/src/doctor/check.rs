//! The checks, in the order in which they are made and shown.

use sdam_core::names;

names! {
    /// A check, which answers one question. The name of a check never changes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Check {
        Uri = "uri",
        DnsSrv = "dns.srv",
        DnsAddr = "dns.addr",
        Tcp = "tcp",
        TlsHandshake = "tls.handshake",
        TlsVerify = "tls.verify",
        Hello = "hello",
        TopoKind = "topo.kind",
        TopoMembers = "topo.members",
        TopoPrimary = "topo.primary",
        Clock = "clock",
        Lag = "lag",
        Rtt = "rtt",
        Auth = "auth",
        Select = "select",
        Write = "write",
    }
}

impl Check {
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

    /// Returns the check whose id is `id`.
    pub(super) fn of(id: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|check| check.as_str() == id);
        found.ok_or_else(|| "there is no such check; --list shows all".to_owned())
    }
}
