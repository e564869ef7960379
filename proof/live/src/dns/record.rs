//! DNS records, and the zone file from which the server reads them.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The default time to live of records, in seconds.
const TTL: u32 = 60;

/// A DNS record. Names are absolute, with or without the final dot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Record {
    name: String,
    ttl: u32,
    data: Data,
}

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// An IPv4 address.
    A,
    /// An IPv6 address.
    Aaaa,
    /// Another name of the same host.
    Cname,
    /// A service's host and port.
    Srv,
    /// One or more strings.
    Txt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(String),
    Srv { priority: u16, weight: u16, port: u16, target: String },
    Txt(Vec<String>),
}

impl Record {
    /// Creates an A or an AAAA record.
    pub fn address(name: &str, address: impl Into<IpAddr>) -> Self {
        let data = match address.into() {
            IpAddr::V4(address) => Data::A(address),
            IpAddr::V6(address) => Data::Aaaa(address),
        };
        Self::new(name, data)
    }

    /// Creates a CNAME record.
    pub fn alias(name: &str, target: &str) -> Self {
        Self::new(name, Data::Cname(absolute(target)))
    }

    /// Creates an SRV record with priority and weight 0.
    pub fn srv(name: &str, target: &str, port: u16) -> Self {
        let (priority, weight, target) = (0, 0, absolute(target));
        Self::new(name, Data::Srv { priority, weight, port, target })
    }

    /// Creates a TXT record with these strings. A string of more than 255 bytes is split.
    pub fn txt<'a>(name: &str, strings: impl IntoIterator<Item = &'a str>) -> Self {
        let strings = strings.into_iter().map(str::to_owned).collect();
        Self::new(name, Data::Txt(strings))
    }

    /// Sets the time to live in seconds; 60 by default. All records of a name and type must have
    /// the same.
    pub fn ttl(mut self, seconds: u32) -> Self {
        self.ttl = seconds;
        self
    }

    /// Returns the type.
    pub fn record_type(&self) -> RecordType {
        match self.data {
            Data::A(_) => RecordType::A,
            Data::Aaaa(_) => RecordType::Aaaa,
            Data::Cname(_) => RecordType::Cname,
            Data::Srv { .. } => RecordType::Srv,
            Data::Txt(_) => RecordType::Txt,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the record has this name and type.
    pub(super) fn is_of_set(&self, name: &str, record_type: RecordType) -> bool {
        self.record_type() == record_type && self.name.eq_ignore_ascii_case(&absolute(name))
    }

    fn new(name: &str, data: Data) -> Self {
        let (name, ttl) = (absolute(name), TTL);
        Self { name, ttl, data }
    }
}

fn absolute(name: &str) -> String {
    format!("{}.", name.strip_suffix('.').unwrap_or(name))
}

/// Returns the text of the root zone with these records. The negative time to live is 0, so that
/// clients do not cache that a name does not exist.
pub(super) fn zone_file(serial: u32, records: &[Record]) -> String {
    let mut text = format!(". 0 SOA . . {serial} 0 0 0 0\n. 0 NS localhost.\n");
    for record in records {
        let Record { name, ttl, data } = record;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} {ttl} {data}");
    }
    text
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A(address) => write!(f, "A {address}"),
            Self::Aaaa(address) => write!(f, "AAAA {address}"),
            Self::Cname(target) => write!(f, "CNAME {target}"),
            Self::Srv { priority, weight, port, target } => {
                write!(f, "SRV {priority} {weight} {port} {target}")
            }
            Self::Txt(strings) => {
                f.write_str("TXT")?;
                strings.iter().try_for_each(|string| {
                    f.write_str(" \"")?;
                    for byte in string.bytes() {
                        // The decimal form of a byte needs no quoting.
                        match byte {
                            b'"' | b'\\' | ..b' ' | 127.. => write!(f, "\\{byte:03}")?,
                            _ => f.write_char(char::from(byte))?,
                        }
                    }
                    f.write_str("\"")
                })
            }
        }
    }
}
