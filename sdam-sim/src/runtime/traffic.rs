//! Classifies the bytes that an observer of the wire sees the program send.

use super::{
    proxy::{Message, Opening},
    tls::is_header,
};

/// Statistics about the program's traffic, as seen by an observer of the wire.
///
/// ```
/// use sdam_core::address::ServerAddress;
/// use sdam_sim::{Blueprint, runtime::Sim};
///
/// let sim = Sim::new(42, &Blueprint::standalone());
/// // The program runs, with TLS and through a proxy.
/// let traffic = sim.network().traffic();
/// assert_eq!((traffic.plain_text, traffic.direct), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// The number of attempts to connect to a server directly instead of through a proxy.
    pub direct: u64,
    /// The number of connections that a server closed because of its limit.
    pub refused: u64,
    /// The number of connections that a server delayed because of its limit.
    pub delayed: u64,
    /// The number of connection attempts to proxies.
    pub proxied: u64,
    /// The number of connections on which the program began with a TLS record. A SOCKS5 handshake
    /// that precedes the record does not count.
    pub encrypted: u64,
    /// The number of connections on which the program sent plain text, which means bytes that are
    /// not TLS records. A SOCKS5 handshake does not count.
    pub plain_text: u64,
}

/// Parses the bytes that the program sends on one connection.
#[derive(Debug)]
pub(super) enum Tap {
    /// The SOCKS5 handshake comes next.
    Opening(Opening),
    /// A TLS record, or the rest of its header, comes next.
    Header {
        bytes: Vec<u8>,
        first: bool,
    },
    /// This many bytes of a record's payload come next.
    Payload(usize),
    PlainText,
}

impl Tap {
    /// Creates the parser for a new connection to a proxy or a server.
    pub(super) fn new(to_proxy: bool) -> Self {
        if to_proxy { Self::Opening(Opening::default()) } else { Self::records(true) }
    }

    fn records(first: bool) -> Self {
        Self::Header { bytes: Vec::new(), first }
    }

    /// Parses sent bytes and counts them.
    pub(super) fn read(&mut self, mut bytes: &[u8], traffic: &mut Traffic) {
        while let Some((next, rest)) = bytes.split_first() {
            match self {
                Self::Opening(opening) => {
                    opening.push(&[*next]);
                    match opening.next() {
                        Ok(Some(Message::Request(_))) => *self = Self::records(true),
                        Ok(_) => {}
                        Err(_) => self.found_plain_text(traffic),
                    }
                    bytes = rest;
                }
                Self::Header { bytes: header, first } => {
                    header.push(*next);
                    bytes = rest;
                    if !is_header(header) {
                        self.found_plain_text(traffic);
                    } else if let [.., high, low] = header[..]
                        && header.len() == 5
                    {
                        traffic.encrypted += u64::from(*first);
                        *self = Self::Payload(usize::from(u16::from_be_bytes([high, low])));
                        self.skip(0);
                    }
                }
                Self::Payload(left) => {
                    let length = bytes.len().min(*left);
                    bytes = &bytes[length..];
                    self.skip(length);
                }
                Self::PlainText => return,
            }
        }
    }

    /// Skips `length` bytes of the payload.
    fn skip(&mut self, length: usize) {
        if let Self::Payload(left) = self {
            *left -= length;
            if *left == 0 {
                *self = Self::records(false);
            }
        }
    }

    fn found_plain_text(&mut self, traffic: &mut Traffic) {
        traffic.plain_text += 1;
        *self = Self::PlainText;
    }
}

#[cfg(test)]
mod tests;
