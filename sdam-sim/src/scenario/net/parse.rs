//! Parses network faults from text.

use std::str::FromStr;

use super::{CertificateChange, NetFault};
use crate::{
    action::{ParseActionError, parse_seconds, unexpected, value},
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
        ("reset_after", [member, "off"]) => NetFault::ResetAfter(member.parse()?, None),
        ("reset_after", [member, bytes]) => {
            let bytes = value("BYTES", bytes)?;
            NetFault::ResetAfter(member.parse()?, Some(bytes))
        }
        ("dns", [fault]) => NetFault::Dns(None, dns_fault(fault)?),
        ("dns", [name, fault]) => NetFault::Dns(Some((*name).into()), dns_fault(fault)?),
        ("srv", [name, ttl, hosts @ ..]) => NetFault::Srv {
            name: (*name).into(),
            ttl: parse_seconds(ttl)?,
            hosts: hosts.iter().map(|word| value("HOST", word)).collect::<Result<_, _>>()?,
        },
        ("tls", [member, fault]) => NetFault::Tls(
            member.parse()?,
            named(TlsFault::ALL, TlsFault::as_str, "stall, cut, plain or off", fault)?,
        ),
        ("certificate", [member, change]) => {
            NetFault::Certificate(member.parse()?, certificate_change(change)?)
        }
        ("proxy", [address, "reset"]) => NetFault::ResetProxy(value("HOST", address)?),
        ("proxy", [address, fault]) => NetFault::Proxy(
            value("HOST", address)?,
            named(ProxyFault::ALL, ProxyFault::as_str, "FAULT, reset or off", fault)?,
        ),
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

fn dns_fault(word: &str) -> Result<Option<DnsFault>, ParseActionError> {
    Ok(match word.split_once('=') {
        None if word == "off" => None,
        None if word == "nxdomain" => Some(DnsFault::NoSuchName),
        None if word == "servfail" => Some(DnsFault::ServerFailure),
        None if word == "silent" => Some(DnsFault::Silence),
        Some(("flap", period)) => Some(DnsFault::Flapping(parse_seconds(period)?)),
        _ => match parse_seconds(word) {
            Ok(latency) => Some(DnsFault::Slow(latency)),
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

/// Returns the fault with this name, or `None` for `off`.
fn named<T: Copy>(
    all: &[T],
    name: fn(T) -> &'static str,
    expected: &str,
    word: &str,
) -> Result<Option<T>, ParseActionError> {
    let found = all.iter().copied().find(|fault| name(*fault) == word);
    if found.is_some() || word == "off" { Ok(found) } else { Err(unexpected(expected, word)) }
}
