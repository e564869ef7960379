//! Faults in the network between the program and the deployment.

mod parse;

use std::{fmt, time::Duration};

use sdam_core::address::ServerAddress;

use crate::{
    MemberId,
    action::{ActionError, Target, Word, seconds},
    runtime::{DnsFault, Latency, ProxyFault, Sim, TlsFault},
};

/// A fault in the network between the program and the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetFault {
    /// New connections to the member are refused if true, or accepted again if false.
    Refuse(Target, bool),
    /// All bytes between the program and the member are silently dropped if true, or delivered
    /// again if false.
    Blackhole(Target, bool),
    /// Every connection to the member is reset.
    Reset(Target),
    /// Every new connection to the member is reset after this many bytes from the member; `None`
    /// turns this off.
    ResetAfter(Target, Option<usize>),
    /// Look-ups of a name have this fault. A name of `None` means all names. A fault of `None` ends
    /// the fault.
    Dns(Option<Box<str>>, Option<DnsFault>),
    /// The SRV records of a name are replaced.
    Srv {
        /// The name, such as `_mongodb._tcp.cluster.sim.test`.
        name: Box<str>,
        /// The TTL of the new records.
        ttl: Duration,
        /// The hosts, one for each new record.
        hosts: Vec<ServerAddress>,
    },
    /// TLS handshakes with the member have this fault; `None` ends it.
    Tls(Target, Option<TlsFault>),
    /// The certificate of the member changes. Established connections are unaffected.
    Certificate(Target, CertificateChange),
    /// The proxy at this address has this fault; `None` ends it.
    Proxy(ServerAddress, Option<ProxyFault>),
    /// Every connection to the proxy at this address is reset.
    ResetProxy(ServerAddress),
    /// The latency changes.
    Latency(Latency),
    /// All network faults end. DNS records and certificates are kept.
    Heal,
}

/// A change to a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateChange {
    /// The certificate expires immediately.
    Expire,
    /// The certificate is replaced with one that is for the server's own name and never expires.
    Renew,
    /// The certificate becomes valid for this host only.
    Name(Box<str>),
    /// The certificate is replaced with one that this authority issued.
    Issuer(Box<str>),
}

impl NetFault {
    pub(super) fn apply(&self, sim: &Sim) -> Result<(), ActionError> {
        let network = sim.network();
        match self {
            Self::Refuse(target, on) => network.refuse(sim.member(*target)?, *on),
            Self::Blackhole(target, on) => network.blackhole(sim.member(*target)?, *on),
            Self::Reset(target) => network.reset(sim.member(*target)?),
            Self::ResetAfter(target, bytes) => network.reset_after(sim.member(*target)?, *bytes),
            Self::Dns(Some(name), fault) => sim.dns().set_fault(name, *fault),
            Self::Dns(None, fault) => sim.dns().set_fault_of_all(*fault),
            Self::Srv { name, ttl, hosts } => sim.dns().set_srv(name, *ttl, hosts.clone()),
            Self::Tls(target, fault) => sim.tls().set_fault(sim.member(*target)?, *fault),
            Self::Certificate(target, change) => change.apply(sim, sim.member(*target)?),
            Self::Proxy(address, fault) => sim.proxies().set_fault(address, *fault),
            Self::ResetProxy(address) => sim.proxies().reset(address),
            Self::Latency(latency) => network.set_latency(*latency),
            Self::Heal => network.heal(),
        }
        Ok(())
    }
}

impl CertificateChange {
    fn apply(&self, sim: &Sim, member: MemberId) {
        let own = sim.tls().certificate(member);
        let changed = match self {
            Self::Expire => {
                let not_before = own.not_before;
                own.valid(not_before, sim.now())
            }
            Self::Renew => return sim.tls().renew_certificate(member),
            Self::Name(name) => own.for_names([&**name]),
            Self::Issuer(authority) => own.issued_by(&**authority),
        };
        sim.tls().set_certificate(member, changed);
    }
}

impl fmt::Display for NetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: &bool| if *on { "" } else { " off" };
        match self {
            Self::Refuse(target, on) => write!(f, "refuse {}{}", Word(*target), switch(on)),
            Self::Blackhole(target, on) => write!(f, "blackhole {}{}", Word(*target), switch(on)),
            Self::Reset(target) => write!(f, "reset {}", Word(*target)),
            Self::ResetAfter(target, Some(bytes)) => {
                write!(f, "reset_after {} {bytes}", Word(*target))
            }
            Self::ResetAfter(target, None) => write!(f, "reset_after {} off", Word(*target)),
            Self::Dns(name, fault) => {
                f.write_str("dns ")?;
                name.iter().try_for_each(|name| write!(f, "{name} "))?;
                f.write_str(&dns_word(*fault))
            }
            Self::Srv { name, ttl, hosts } => {
                write!(f, "srv {name} {}", seconds(*ttl))?;
                hosts.iter().try_for_each(|host| write!(f, " {host}"))
            }
            Self::Tls(target, fault) => {
                write!(f, "tls {} {}", Word(*target), fault.map_or("off", TlsFault::as_str))
            }
            Self::Certificate(target, change) => {
                write!(f, "certificate {} {change}", Word(*target))
            }
            Self::Proxy(address, fault) => {
                write!(f, "proxy {address} {}", fault.map_or("off", ProxyFault::as_str))
            }
            Self::ResetProxy(address) => write!(f, "proxy {address} reset"),
            Self::Latency(latency) => {
                let (min, spread) = (seconds(latency.min), seconds(latency.spread));
                let chunked = if latency.chunked { " chunked" } else { "" };
                write!(f, "latency {min} {spread}{chunked}")
            }
            Self::Heal => f.write_str("heal"),
        }
    }
}

impl fmt::Display for CertificateChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expire => f.write_str("expire"),
            Self::Renew => f.write_str("renew"),
            Self::Name(name) => write!(f, "name={name}"),
            Self::Issuer(authority) => write!(f, "issuer={authority}"),
        }
    }
}

fn dns_word(fault: Option<DnsFault>) -> String {
    match fault {
        None => "off".to_owned(),
        Some(DnsFault::Slow(latency)) => seconds(latency),
        Some(DnsFault::NoSuchName) => "nxdomain".to_owned(),
        Some(DnsFault::ServerFailure) => "servfail".to_owned(),
        Some(DnsFault::Silence) => "silent".to_owned(),
        Some(DnsFault::Flapping(period)) => format!("flap={}", seconds(period)),
    }
}
