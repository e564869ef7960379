//! Parses network faults from text.

use std::{str::FromStr, time::Duration};

use sdam_core::address::ServerAddress;

use super::{CertificateChange, NetFault};
use crate::{
    action::{Target, parse_seconds, value},
    runtime::{DnsFault, Latency, ProxyFault, TlsFault},
    scenario::error::ParseStepError,
};

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
        // The prefix `net` is optional here. Only scenarios need it, to distinguish faults from
        // actions.
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

fn read_fault(verb: &str, words: &[&str]) -> Result<NetFault, String> {
    Ok(match (verb, words) {
        ("refuse", [member]) => NetFault::Refuse(target(member)?, true),
        ("refuse", [member, "off"]) => NetFault::Refuse(target(member)?, false),
        ("blackhole", [member]) => NetFault::Blackhole(target(member)?, true),
        ("blackhole", [member, "off"]) => NetFault::Blackhole(target(member)?, false),
        ("reset", [member]) => NetFault::Reset(target(member)?),
        ("reset_after", [member, "off"]) => NetFault::ResetAfter(target(member)?, None),
        ("reset_after", [member, bytes]) => {
            let bytes = value("BYTES", bytes).map_err(|error| error.to_string())?;
            NetFault::ResetAfter(target(member)?, Some(bytes))
        }
        ("dns", [fault]) => NetFault::Dns(None, dns_fault(fault)?),
        ("dns", [name, fault]) => NetFault::Dns(Some((*name).into()), dns_fault(fault)?),
        ("srv", [name, ttl, hosts @ ..]) => NetFault::Srv {
            name: (*name).into(),
            ttl: seconds(ttl)?,
            hosts: hosts.iter().map(|word| host(word)).collect::<Result<_, _>>()?,
        },
        ("tls", [member, fault]) => NetFault::Tls(
            target(member)?,
            named(TlsFault::ALL, TlsFault::as_str, "stall, cut, plain or off", fault)?,
        ),
        ("certificate", [member, change]) => {
            NetFault::Certificate(target(member)?, certificate_change(change)?)
        }
        ("proxy", [address, "reset"]) => NetFault::ResetProxy(host(address)?),
        ("proxy", [address, fault]) => NetFault::Proxy(
            host(address)?,
            named(ProxyFault::ALL, ProxyFault::as_str, "FAULT, reset or off", fault)?,
        ),
        ("latency", [min, spread, rest @ ..]) if matches!(rest, [] | ["chunked"]) => {
            NetFault::Latency(Latency {
                min: seconds(min)?,
                spread: seconds(spread)?,
                chunked: !rest.is_empty(),
            })
        }
        ("heal", []) => NetFault::Heal,
        (verb, words) if verbs().any(|known| known == verb) => {
            return Err(match words {
                [] => format!("`net {verb}` lacks its arguments"),
                words => format!("`net {verb}` does not take `{}`", words.join(" ")),
            });
        }
        _ => return Err(format!("`{verb}` is not a fault of the network")),
    })
}

fn dns_fault(word: &str) -> Result<Option<DnsFault>, String> {
    Ok(match word.split_once('=') {
        None if word == "off" => None,
        None if word == "nxdomain" => Some(DnsFault::NoSuchName),
        None if word == "servfail" => Some(DnsFault::ServerFailure),
        None if word == "silent" => Some(DnsFault::Silence),
        Some(("flap", period)) => Some(DnsFault::Flapping(seconds(period)?)),
        _ => match seconds(word) {
            Ok(latency) => Some(DnsFault::Slow(latency)),
            Err(_) => return Err(format!("`{word}` is not FAULT or off")),
        },
    })
}

fn certificate_change(word: &str) -> Result<CertificateChange, String> {
    Ok(match word.split_once('=') {
        None if word == "expire" => CertificateChange::Expire,
        None if word == "renew" => CertificateChange::Renew,
        Some(("name", name)) => CertificateChange::Name(name.into()),
        Some(("issuer", authority)) => CertificateChange::Issuer(authority.into()),
        _ => return Err(format!("`{word}` is not CHANGE")),
    })
}

/// Returns the fault with this name, or `None` for `off`.
fn named<T: Copy>(
    all: &[T],
    name: fn(T) -> &'static str,
    expected: &str,
    word: &str,
) -> Result<Option<T>, String> {
    let found = all.iter().copied().find(|fault| name(*fault) == word);
    if found.is_some() || word == "off" {
        Ok(found)
    } else {
        Err(format!("`{word}` is not {expected}"))
    }
}

fn target(word: &str) -> Result<Target, String> {
    word.parse::<Target>().map_err(|error| error.to_string())
}

fn seconds(word: &str) -> Result<Duration, String> {
    parse_seconds(word).map_err(|error| error.to_string())
}

fn host(word: &str) -> Result<ServerAddress, String> {
    ServerAddress::parse(word).map_err(|_| format!("`{word}` is not HOST"))
}
