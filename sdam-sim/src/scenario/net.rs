//! Faults in the network between the program and the deployment.

use std::{fmt, str::FromStr, time::Duration};

use sdam_core::address::ServerAddress;

use super::ParseStepError;
use crate::{
    MemberId,
    action::{
        ActionError, ParseActionError, Target, Word, or_off, parse_seconds, seconds, unexpected,
        unless_off, value,
    },
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
        let mut own = sim.tls().certificate(member);
        match self {
            Self::Expire => own.not_after = sim.now(),
            Self::Renew => return sim.tls().renew_certificate(member),
            Self::Name(name) => own.names = vec![name.clone()],
            Self::Issuer(authority) => own.issuer.clone_from(authority),
        }
        sim.tls().set_certificate(member, own);
    }
}

impl fmt::Display for NetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: &bool| if *on { "" } else { " off" };
        match self {
            Self::Refuse(target, on) => write!(f, "refuse {}{}", Word(*target), switch(on)),
            Self::Blackhole(target, on) => write!(f, "blackhole {}{}", Word(*target), switch(on)),
            Self::Reset(target) => write!(f, "reset {}", Word(*target)),
            Self::ResetAfter(target, bytes) => {
                write!(f, "reset_after {} {}", Word(*target), or_off(*bytes))
            }
            Self::Dns(name, fault) => {
                f.write_str("dns ")?;
                name.iter().try_for_each(|name| write!(f, "{name} "))?;
                f.write_str(&or_off(fault.map(dns_word)))
            }
            Self::Srv { name, ttl, hosts } => {
                write!(f, "srv {name} {}", seconds(*ttl))?;
                hosts.iter().try_for_each(|host| write!(f, " {host}"))
            }
            Self::Tls(target, fault) => {
                write!(f, "tls {} {}", Word(*target), or_off(*fault))
            }
            Self::Certificate(target, change) => {
                write!(f, "certificate {} {change}", Word(*target))
            }
            Self::Proxy(address, fault) => {
                write!(f, "proxy {address} {}", or_off(*fault))
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

fn dns_word(fault: DnsFault) -> String {
    match fault {
        DnsFault::Slow(latency) => seconds(latency),
        DnsFault::NoSuchName => "nxdomain".to_owned(),
        DnsFault::ServerFailure => "servfail".to_owned(),
        DnsFault::Silence => "silent".to_owned(),
        DnsFault::Flapping(period) => format!("flap={}", seconds(period)),
    }
}

impl NetFault {
    /// The syntax and meaning of every network fault, one per line.
    pub const SYNTAX: &str = "\
net refuse MEMBER [off]             new connections to the member are refused
net blackhole MEMBER [off]          bytes to and from the member are dropped silently
net reset MEMBER                    every connection to the member is reset
net reset_after MEMBER BYTES|off    new connections are reset after this many bytes from the member
net dns [NAME] FAULT|off            look-ups of the name, or of all names, take SECONDS or fail:
                                    FAULT is SECONDS, nxdomain, servfail, silent or flap=SECONDS
                                    (servfail for this long, answers for this long, and so on)
net srv NAME TTL [HOST]...          the name gets these SRV records, with this TTL in seconds
net tls MEMBER stall|cut|plain|off  TLS handshakes with the member stall, are cut, get plain text
net certificate MEMBER CHANGE       the member's certificate expires (expire), is replaced by a valid
                                    one (renew), gets another name (name=HOST) or issuer (issuer=NAME)
net proxy HOST FAULT|reset|off      the proxy has died (down), neither answers nor forwards (stall) or
                                    forbids connections (reject); or its connections are reset
net latency MIN SPREAD [chunked]    one way takes MIN to MIN + SPREAD seconds; in pieces
net heal                            all these faults end; records stay";
}

impl FromStr for NetFault {
    type Err = ParseStepError;

    fn from_str(text: &str) -> Result<Self, ParseStepError> {
        let mut words = text.split_whitespace().peekable();
        // The prefix `net` is optional when a fault is parsed by itself. Only scenarios need it, to
        // distinguish faults from actions.
        words.next_if_eq(&"net");
        let verb = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        read_fault(verb, &words)
            .map_err(|what| ParseStepError::of_step(what, &["net", verb], Self::SYNTAX, verbs()))
    }
}

/// Returns the verb of each line in [`NetFault::SYNTAX`].
fn verbs() -> impl Iterator<Item = &'static str> {
    let lines = NetFault::SYNTAX.lines();
    lines.filter_map(|line| line.strip_prefix("net ")?.split_whitespace().next())
}

fn read_fault(verb: &str, words: &[&str]) -> Result<NetFault, ParseActionError> {
    Ok(match (verb, words) {
        ("refuse", [member]) => NetFault::Refuse(member.parse()?, true),
        ("refuse", [member, "off"]) => NetFault::Refuse(member.parse()?, false),
        ("blackhole", [member]) => NetFault::Blackhole(member.parse()?, true),
        ("blackhole", [member, "off"]) => NetFault::Blackhole(member.parse()?, false),
        ("reset", [member]) => NetFault::Reset(member.parse()?),
        ("reset_after", [member, bytes]) => {
            let bytes = unless_off(bytes, |bytes| value("BYTES", bytes))?;
            NetFault::ResetAfter(member.parse()?, bytes)
        }
        ("dns", [name @ .., fault]) if name.len() < 2 => {
            let name = name.first().map(|name| (*name).into());
            NetFault::Dns(name, unless_off(fault, dns_fault)?)
        }
        ("srv", [name, ttl, hosts @ ..]) => NetFault::Srv {
            name: (*name).into(),
            ttl: parse_seconds(ttl)?,
            hosts: hosts.iter().map(|word| value("HOST", word)).collect::<Result<_, _>>()?,
        },
        ("tls", [member, fault]) => {
            let fault = unless_off(fault, |fault| value("stall, cut, plain or off", fault))?;
            NetFault::Tls(member.parse()?, fault)
        }
        ("certificate", [member, change]) => {
            NetFault::Certificate(member.parse()?, certificate_change(change)?)
        }
        ("proxy", [address, "reset"]) => NetFault::ResetProxy(value("HOST", address)?),
        ("proxy", [address, fault]) => {
            let fault = unless_off(fault, |fault| value("FAULT, reset or off", fault))?;
            NetFault::Proxy(value("HOST", address)?, fault)
        }
        ("latency", [min, spread, rest @ ..]) if matches!(rest, [] | ["chunked"]) => {
            NetFault::Latency(Latency {
                min: parse_seconds(min)?,
                spread: parse_seconds(spread)?,
                chunked: !rest.is_empty(),
            })
        }
        ("heal", []) => NetFault::Heal,
        (verb, words) if verbs().any(|known| known == verb) => {
            return Err(ParseActionError(match words {
                [] => format!("`net {verb}` lacks its arguments"),
                words => format!("`net {verb}` does not take `{}`", words.join(" ")),
            }));
        }
        _ => return Err(unexpected("a fault of the network", verb)),
    })
}

fn dns_fault(word: &str) -> Result<DnsFault, ParseActionError> {
    Ok(match word.split_once('=') {
        None if word == "nxdomain" => DnsFault::NoSuchName,
        None if word == "servfail" => DnsFault::ServerFailure,
        None if word == "silent" => DnsFault::Silence,
        Some(("flap", period)) => DnsFault::Flapping(parse_seconds(period)?),
        _ => match parse_seconds(word) {
            Ok(latency) => DnsFault::Slow(latency),
            Err(_) => return Err(unexpected("FAULT or off", word)),
        },
    })
}

fn certificate_change(word: &str) -> Result<CertificateChange, ParseActionError> {
    Ok(match word.split_once('=') {
        None if word == "expire" => CertificateChange::Expire,
        None if word == "renew" => CertificateChange::Renew,
        Some(("name", name)) => CertificateChange::Name(name.into()),
        Some(("issuer", authority)) => CertificateChange::Issuer(authority.into()),
        _ => return Err(unexpected("CHANGE", word)),
    })
}
