//! DNS records, and the zone file from which the server reads them.

use std::fmt::Write;
use std::net::IpAddr;

/// The default time to live of records, in seconds.
const TTL: u32 = 60;

/// A DNS record. Names are absolute, with or without the final dot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Record {
    name: String,
    ttl: u32,
    kind: RecordType,
    /// The data of the record, in zone file format.
    data: String,
}

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// An IPv4 address.
    A,
    /// An IPv6 address.
    Aaaa,
    /// The host and port of a service.
    Srv,
    /// One or more strings.
    Txt,
}

impl Record {
    /// Creates an A or an AAAA record.
    pub fn address(name: &str, address: impl Into<IpAddr>) -> Self {
        let address = address.into();
        let kind = if address.is_ipv4() { RecordType::A } else { RecordType::Aaaa };
        Self::new(name, kind, address.to_string())
    }

    /// Creates an SRV record with priority and weight 0.
    pub fn srv(name: &str, target: &str, port: u16) -> Self {
        Self::new(name, RecordType::Srv, format!("0 0 {port} {}", absolute(target)))
    }

    /// Creates a TXT record that consists of `strings`. A string of more than 255 bytes is split.
    pub fn txt<'a>(name: &str, strings: impl IntoIterator<Item = &'a str>) -> Self {
        let strings: Vec<_> = strings.into_iter().map(quoted).collect();
        Self::new(name, RecordType::Txt, strings.join(" "))
    }

    /// Sets the time to live in seconds, which is 60 by default. All records with the same name and
    /// type must have the same time to live.
    pub fn ttl(mut self, seconds: u32) -> Self {
        self.ttl = seconds;
        self
    }

    /// Returns the type of the record.
    pub fn record_type(&self) -> RecordType {
        self.kind
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the record has the given name and type.
    pub(super) fn is_of_set(&self, name: &str, record_type: RecordType) -> bool {
        self.kind == record_type && self.name.eq_ignore_ascii_case(&absolute(name))
    }

    fn new(name: &str, kind: RecordType, data: String) -> Self {
        Self { name: absolute(name), ttl: TTL, kind, data }
    }
}

fn absolute(name: &str) -> String {
    format!("{}.", name.strip_suffix('.').unwrap_or(name))
}

fn quoted(string: &str) -> String {
    let bytes = string.bytes().map(|byte| match byte {
        // Special bytes are escaped as decimal numbers.
        b'"' | b'\\' | ..b' ' | 127.. => format!("\\{byte:03}"),
        _ => char::from(byte).to_string(),
    });
    format!("\"{}\"", bytes.collect::<String>())
}

/// Returns the zone file of the root zone with the given records. The time to live of negative
/// answers is 0, so that clients do not cache the fact that a name does not exist.
pub(super) fn zone_file(serial: u32, records: &[Record]) -> String {
    let mut text = format!(". 0 SOA . . {serial} 0 0 0 0\n. 0 NS localhost.\n");
    for Record { name, ttl, kind, data } in records {
        let kind = format!("{kind:?}").to_uppercase();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} {ttl} {kind} {data}");
    }
    text
}
