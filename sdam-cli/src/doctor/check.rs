//! The checks, in the order in which they are made and shown.

use sdam_core::names;

names! {
    /// A check. Its name never changes.
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
    /// Returns the check whose id is `id`.
    pub(super) fn of(id: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|check| check.as_str() == id);
        found.ok_or_else(|| {
            let ids: Vec<_> = Self::ALL.iter().map(|check| check.as_str()).collect();
            format!("there is no such check; the checks are {}", ids.join(", "))
        })
    }
}
