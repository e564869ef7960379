//! The checks, in the order in which they are made and shown.

/// A check. Its name never changes.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Check {
    Uri,
    #[strum(serialize = "dns.srv")]
    DnsSrv,
    #[strum(serialize = "dns.addr")]
    DnsAddr,
    Tcp,
    #[strum(serialize = "tls.handshake")]
    TlsHandshake,
    #[strum(serialize = "tls.verify")]
    TlsVerify,
    Hello,
    #[strum(serialize = "topo.kind")]
    TopoKind,
    #[strum(serialize = "topo.members")]
    TopoMembers,
    #[strum(serialize = "topo.primary")]
    TopoPrimary,
    Clock,
    Lag,
    Rtt,
    Auth,
    Select,
    Write,
}

impl Check {
    /// Every value, in declaration order.
    pub(super) const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name, for logs, records and counters.
    pub(super) fn as_str(self) -> &'static str {
        self.into()
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
