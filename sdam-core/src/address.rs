//! Server addresses, which are compared by the rules of the specifications.

use alloc::{format, sync::Arc};
use core::{cmp::Ordering, fmt, hash, net::Ipv6Addr, str::FromStr};

use crate::options::ConfigError;

/// The port of a server whose address does not contain one.
pub const DEFAULT_PORT: u16 = 27017;

/// The address of a server: a host and a port, or the path of a Unix domain socket.
///
/// Host names are converted to lower case (SDAM: "Hostname normalization"), the port is always
/// present and IPv6 literals are in brackets, so addresses are compared and ordered as strings.
/// Cloning increments a reference count.
#[derive(Clone)]
pub struct ServerAddress {
    text: Arc<str>,
    /// `None` for a Unix domain socket.
    port: Option<u16>,
}

impl ServerAddress {
    /// Creates the address of `host` (without brackets if it is an IPv6 literal) at `port`.
    pub fn new(host: &str, port: u16) -> Self {
        let bracket = host.contains(':');
        let (open, close) = if bracket { ("[", "]") } else { ("", "") };
        let mut text = format!("{open}{host}{close}:{port}");
        // The zone of an IPv6 address names an interface of this host, and keeps its case.
        let zone = text.find('%').unwrap_or(text.len());
        if let Some(host) = text.get_mut(..zone) {
            host.make_ascii_lowercase();
        }
        Self { text: text.into(), port: Some(port) }
    }

    /// Creates the address of the Unix domain socket at `path`. The case of the path is kept.
    pub fn unix(path: &str) -> Self {
        Self { text: path.into(), port: None }
    }

    /// Parses `host`, `host:port`, `[v6]`, `[v6]:port` or a path that ends in `.sock`.
    ///
    /// # Errors
    ///
    /// If `text` is not a server address.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::read(text).map_err(|reason| {
            let remedy = "write host, host:port or [IPv6]:port";
            ConfigError::new("server address", text, reason, remedy)
        })
    }

    /// Parses an address. If that fails, returns a description of the problem with `text`.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        if let Some(port) = port_of_usual(text) {
            return Ok(Self { text: text.into(), port: Some(port) });
        }
        // SDAM does not say how to recognize a socket, so this follows the Connection String
        // specification.
        if text.strip_suffix(".sock").is_some() {
            if text.chars().any(char::is_control) {
                return Err("the path contains a control character");
            }
            return Ok(Self::unix(text));
        }
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let Some((host, rest)) = rest.split_once(']') else {
                return Err("the bracket of the IPv6 literal is not closed");
            };
            if !host.contains(':') {
                return Err("only an IPv6 literal may stand in brackets");
            }
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err("only a port may follow the bracket"),
            }
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        if host.is_empty() {
            return Err(stray_colon(text).unwrap_or("the host is empty"));
        }
        if host.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control() || b == b'/') {
            return Err("the host contains a space, a control character or a `/`");
        }
        let Some(digits) = port else {
            return Ok(Self::new(host, DEFAULT_PORT));
        };
        let Some(port) = parse_port(digits) else {
            let reason = "the port must be a number from 1 to 65535";
            return Err(stray_colon(text).unwrap_or(reason));
        };
        Ok(Self::new(host, port))
    }

    /// Returns the address as a string, such as `a:27017`, `[::1]:27017` or `/tmp/mongodb.sock`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the host without brackets, or the path of the socket.
    pub fn host(&self) -> &str {
        let host = match self.port {
            None => return &self.text,
            Some(_) => self.text.rsplit_once(':').map_or(&*self.text, |(host, _)| host),
        };
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Returns the port; `None` for a Unix domain socket.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns whether this is the path of a Unix domain socket.
    pub fn is_unix(&self) -> bool {
        self.port.is_none()
    }
}

/// Returns the port if `text` consists of a lower-case host name, a colon and a port. Nearly all
/// addresses in replies have this form, so this function parses it in a single pass.
fn port_of_usual(text: &str) -> Option<u16> {
    let mut colon = None;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' => {}
            b':' if colon.is_none() && index > 0 => colon = Some(index),
            _ => return None,
        }
    }
    let digits = text.get(colon? + 1..)?;
    // A port must not be zero or have leading zeros.
    if digits.starts_with('0') {
        return None;
    }
    digits.parse().ok()
}

/// Returns an error message if `text` contains a colon other than the one that precedes the port.
fn stray_colon(text: &str) -> Option<&'static str> {
    if is_ipv6(text) {
        Some("an IPv6 address stands in brackets")
    } else if !text.starts_with('[') && text.matches(':').count() > 1 {
        Some("it has more than one `:`, and only an IPv6 address in brackets may")
    } else {
        None
    }
}

/// Returns whether `text` is an IPv6 address without brackets.
pub(crate) fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

fn parse_port(digits: &str) -> Option<u16> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|port| *port != 0)
}

impl FromStr for ServerAddress {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for ServerAddress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text) || self.text == other.text
    }
}

impl Eq for ServerAddress {}

impl PartialOrd for ServerAddress {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ServerAddress {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.text, &other.text) {
            return Ordering::Equal;
        }
        self.text.cmp(&other.text)
    }
}

impl hash::Hash for ServerAddress {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
        string::ToString,
    };

    use super::*;

    fn check(text: &str, shown: &str, host: &str, port: Option<u16>) {
        let address = ServerAddress::parse(text).unwrap();
        assert_eq!(address.to_string(), shown);
        assert_eq!(address.host(), host);
        assert_eq!(address.port(), port);
    }

    #[test]
    fn equal_addresses_have_the_same_hash_and_others_do_not() {
        let hash = |text| {
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            hasher.hash_one(ServerAddress::parse(text).unwrap())
        };
        assert_eq!(hash("A"), hash("a:27017"));
        assert_ne!(hash("a"), hash("a:27018"));
    }

    #[test]
    fn parsing_normalises_case_port_and_brackets() {
        check("A", "a:27017", "a", Some(27017));
        check("Db.Example.COM:1", "db.example.com:1", "db.example.com", Some(1));
        check("[::1]", "[::1]:27017", "::1", Some(27017));
        check("[FE80::1%Lo0]:9", "[fe80::1%Lo0]:9", "fe80::1%Lo0", Some(9));
        check("a:0090", "a:90", "a", Some(90));
        check("[FE80::1]:9", "[fe80::1]:9", "fe80::1", Some(9));
        check(
            "/tmp/MongoDB-27017.sock",
            "/tmp/MongoDB-27017.sock",
            "/tmp/MongoDB-27017.sock",
            None,
        );
    }

    #[test]
    fn an_invalid_address_is_refused_with_the_reason() {
        for text in [
            "", ":1", "a:", "a:0", "a:65536", "a:+1", "a:b", "[::1", "[::1]x", "[a]:1", "a b",
            "::1",
        ] {
            let error = ServerAddress::parse(text).unwrap_err();
            assert_eq!((error.option(), error.value()), ("server address", text));
        }
        let check = |text: &str, reason| {
            let error = ServerAddress::parse(text).unwrap_err();
            assert_eq!(error.reason(), reason, "{text}");
        };
        for ipv6 in ["::1", "fe80::1", "2001:db8::a", "::ffff:127.0.0.1"] {
            check(ipv6, "an IPv6 address stands in brackets");
        }
        let colons = "it has more than one `:`, and only an IPv6 address in brackets may";
        check("host::1", colons);
        check("a:1:2", colons);
        check("::1x", colons);
        check("a:b", "the port must be a number from 1 to 65535");
        check("/tmp/a\n.sock", "the path contains a control character");
        check("[::1]:b", "the port must be a number from 1 to 65535");
        check(":1", "the host is empty");
        check("a b", "the host contains a space, a control character or a `/`");
    }
}
