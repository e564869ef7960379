//! Connections through a SOCKS5 proxy (driver specifications: "SOCKS5 Support"; RFC 1928, RFC
//! 1929).
//!
//! This is implemented here because existing SOCKS5 crates depend on a runtime or on many other
//! crates.

use std::{io, net::IpAddr};

use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    options::ProxyOptions,
};

use crate::stream::ByteStream;

/// Requests a connection to `target` from the proxy at the other end of `stream`.
///
/// Afterwards `stream` leads to `target`, and no byte that `target` sent has been read. The proxy
/// looks up host names; IP addresses are sent in binary form. Blocking streams, whose polls are
/// always ready, are supported as well: if the proxy does not answer, the stream's deadline ends
/// the handshake.
///
/// # Errors
///
/// The error has [`Stage::Proxy`] and names the proxy, the target and the cause, but never the user
/// name or the password. A Unix domain socket is refused, because proxies cannot connect to it.
///
/// # Cancel safety
///
/// Not cancel safe: dropping the future makes the stream unusable.
pub(crate) async fn connect<S: ByteStream>(
    stream: &mut S,
    proxy: &ProxyOptions,
    target: &ServerAddress,
) -> Result<(), Error> {
    let outcome = negotiate(stream, proxy, target).await;
    outcome.map_err(|SocksFailure(kind, cause)| {
        let proxy = ServerAddress::new(&proxy.host, proxy.port);
        error(kind, &proxy, target, &cause)
    })
}

/// Returns the error for a handshake that had not ended by its deadline.
pub(crate) fn timed_out(proxy: &ServerAddress, target: &ServerAddress) -> Error {
    error(ErrorKind::Timeout, proxy, target, SILENT)
}

/// Returns the error to report if the connection to the proxy itself failed with `cause`.
///
/// The error has [`Stage::Proxy`], because an unreachable proxy is not a sign of an overloaded
/// server (CMAP: "establishing a connection to a SOCKS5 proxy").
pub(crate) fn unreachable(cause: &Error, proxy: &ServerAddress, target: &ServerAddress) -> Error {
    let text = format!("the proxy cannot be reached: {}", cause.message());
    error(cause.kind(), proxy, target, &text)
}

async fn negotiate<S: ByteStream>(
    stream: &mut S,
    proxy: &ProxyOptions,
    target: &ServerAddress,
) -> Result<(), SocksFailure> {
    let credential = proxy.credential.as_ref();
    let credential = credential.map(|(user, password)| (&**user, password.expose()));
    // SOCKS5 Support: "Drivers MUST ignore this option if it specifies a zero-length string".
    let credential = credential.filter(|credential| *credential != ("", ""));
    if let Some((user, password)) = credential {
        let fits = |text: &str| (1..=LONGEST).contains(&text.len());
        if !fits(user) || !fits(password) {
            let cause = "proxyUsername and proxyPassword have to be 1 to 255 bytes long";
            return Err(SocksFailure::network(cause));
        }
    }
    let request = request(target)?;
    let mut dialogue = Dialogue { stream, part: "the greeting" };
    // With a credential, both methods are offered (SOCKS5 Support: "proxyUsername").
    let greeting: &[u8] = match credential {
        Some(_) => &[VERSION, 2, NO_AUTHENTICATION, USER_AND_PASSWORD],
        None => &[VERSION, 1, NO_AUTHENTICATION],
    };
    let [version, method] = dialogue.ask(greeting).await?;
    check_version(version)?;
    match (method, credential) {
        (NO_AUTHENTICATION, _) => {}
        (USER_AND_PASSWORD, Some((user, password))) => {
            dialogue.part = "authentication";
            let mut login = vec![AUTHENTICATION_VERSION];
            put(&mut login, user);
            put(&mut login, password);
            // Any version is accepted, because some proxies send the version of RFC 1928 instead of
            // that of RFC 1929.
            let [_, status] = dialogue.ask(&login).await?;
            if status != SUCCEEDED {
                let cause = "the proxy rejects proxyUsername and proxyPassword";
                return Err(SocksFailure::network(cause));
            }
        }
        (NO_ACCEPTABLE_METHOD, credential) => {
            return Err(SocksFailure::network(match credential {
                None => "the proxy requires authentication: set proxyUsername and proxyPassword",
                Some(_) => "the proxy does not authenticate by user name and password",
            }));
        }
        (other, _) => {
            return Err(SocksFailure::protocol(format!(
                "the proxy chose the authentication method {other}, which was not offered"
            )));
        }
    }
    dialogue.part = "the request to connect";
    let [version, code] = dialogue.ask(&request).await?;
    check_version(version)?;
    if code != SUCCEEDED {
        return Err(SocksFailure::network(refusal(code, &request)));
    }
    // The proxy next sends a reserved byte, the type of its own address, and the first byte of that
    // address.
    let [_, kind, first] = dialogue.read().await?;
    let rest = match kind {
        IPV4 => 3,
        IPV6 => 15,
        NAME => usize::from(first),
        other => {
            let cause = format!("the proxy's reply has an address of unknown type {other}");
            return Err(SocksFailure::protocol(cause));
        }
    };
    dialogue.fill(&mut vec![0; rest + PORT_LENGTH]).await
}

/// The exchange of bytes with the proxy.
struct Dialogue<'s, S> {
    stream: &'s mut S,
    /// The current part of the handshake, which errors mention.
    part: &'static str,
}

impl<S: ByteStream> Dialogue<'_, S> {
    /// Sends a message and reads the first bytes of the answer.
    async fn ask<const N: usize>(&mut self, message: &[u8]) -> Result<[u8; N], SocksFailure> {
        let sent = self.stream.write_all(message).await;
        sent.map_err(|error| self.broken(&error))?;
        let sent = self.stream.flush().await;
        sent.map_err(|error| self.broken(&error))?;
        self.read().await
    }

    async fn read<const N: usize>(&mut self) -> Result<[u8; N], SocksFailure> {
        let mut bytes = [0; N];
        self.fill(&mut bytes).await?;
        Ok(bytes)
    }

    async fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SocksFailure> {
        let read = self.stream.read_exact(bytes).await;
        read.map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &io::Error) -> SocksFailure {
        let part = self.part;
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                SocksFailure::network(format!("the proxy closed the connection during {part}"))
            }
            io::ErrorKind::TimedOut => SocksFailure(ErrorKind::Timeout, SILENT.into()),
            _ => SocksFailure::network(format!(
                "the connection to the proxy broke during {part}: {error}"
            )),
        }
    }
}

/// The kind and the cause of a failed handshake, and the remedy if there is one.
struct SocksFailure(ErrorKind, String);

impl SocksFailure {
    fn network(cause: impl Into<String>) -> Self {
        Self(ErrorKind::Network, cause.into())
    }

    fn protocol(cause: impl Into<String>) -> Self {
        Self(ErrorKind::Protocol, cause.into())
    }
}

/// Checks the first byte of an answer, in order to recognize peers that are not SOCKS5 servers.
fn check_version(byte: u8) -> Result<(), SocksFailure> {
    Err(SocksFailure::protocol(match byte {
        VERSION => return Ok(()),
        // An HTTP server answers `HTTP/1.1 400 Bad Request`.
        b'H' => "this is no SOCKS5 server, it answers as an HTTP server or HTTP proxy".into(),
        0 => "this is no SOCKS5 server, it answers as SOCKS4".into(),
        other => format!("this is no SOCKS5 server, its answer begins with the byte {other}"),
    }))
}

/// Describes the reason why the proxy refused `request`.
fn refusal(code: u8, request: &[u8]) -> String {
    let text = match (code, request.get(3)) {
        (1, _) => "the proxy reports a general failure",
        (2, _) => "the proxy's rules do not allow this connection",
        (3, _) => "the network cannot be reached from the proxy",
        (4, _) => "the host cannot be reached from the proxy, or its name cannot be resolved there",
        (5, _) => "the server refuses connections from the proxy",
        (6, _) => "the TTL of a packet expired between the proxy and the server",
        (7, _) => "the proxy does not support the command CONNECT",
        (8, Some(&IPV4)) => "the proxy does not support IPv4 addresses",
        (8, Some(&IPV6)) => "the proxy does not support IPv6 addresses",
        (8, _) => "the proxy does not support host names",
        _ => return format!("the proxy refuses with the unknown code {code}"),
    };
    text.into()
}

/// Returns the request for a connection to `target`.
fn request(target: &ServerAddress) -> Result<Vec<u8>, SocksFailure> {
    let port = target
        .port()
        .ok_or_else(|| SocksFailure::network("no proxy connects to a Unix domain socket"))?;
    let mut request = vec![VERSION, CONNECT, 0];
    match target.host().parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        Err(_) if target.host().len() > LONGEST => {
            return Err(SocksFailure::network("a host name may be 255 bytes long"));
        }
        Err(_) => {
            request.push(NAME);
            put(&mut request, target.host());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

/// Appends the length and the bytes of `text`, which is at most [`LONGEST`] bytes long.
fn put(message: &mut Vec<u8>, text: &str) {
    message.push(text.len() as u8);
    message.extend(text.as_bytes());
}

fn error(kind: ErrorKind, proxy: &ServerAddress, target: &ServerAddress, cause: &str) -> Error {
    let text = format!("no connection to {target} through the SOCKS5 proxy {proxy}: {cause}");
    Error::new(kind, Stage::Proxy, text)
}

const SILENT: &str = "the proxy did not answer in time";
const VERSION: u8 = 5;
const AUTHENTICATION_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const SUCCEEDED: u8 = 0;
/// The length of a port, in bytes.
const PORT_LENGTH: usize = 2;
/// The maximum length of a string in a message, in bytes.
const LONGEST: usize = 255;

#[cfg(test)]
mod tests;
