//! Connections through a SOCKS5 proxy (driver specifications: "SOCKS5 Support").

mod handshake;

use std::io;

use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    options::ProxyOptions,
};

use self::handshake::{Handshake, Problem, Step};
use crate::stream::ByteStream;

/// Requests a connection to `target` from the proxy at the other end of `stream`.
///
/// Afterwards `stream` leads to `target`, and none of its bytes have been read. The proxy looks up
/// host names; IP addresses are sent as such. Also works with blocking streams, whose polls are
/// always ready: their deadline ends a handshake that the proxy does not answer.
///
/// # Errors
///
/// At [`Stage::Proxy`], with the proxy, the target and the cause, but never the user name or the
/// password. A Unix domain socket is refused: proxies cannot connect to it.
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
    outcome.map_err(|failure| {
        let proxy = ServerAddress::new(&proxy.host, proxy.port);
        let (kind, cause) = failure.describe();
        error(kind, &proxy, target, &cause)
    })
}

/// Returns the error of a handshake that did not end by its deadline.
pub(crate) fn timed_out(proxy: &ServerAddress, target: &ServerAddress) -> Error {
    error(ErrorKind::Timeout, proxy, target, SILENT)
}

/// Returns the error of a connection to the proxy itself that failed with `cause`.
///
/// Its stage is [`Stage::Proxy`]: an unreachable proxy is not a sign of an overloaded server (CMAP:
/// "establishing a connection to a SOCKS5 proxy").
pub(crate) fn unreachable(cause: &Error, proxy: &ServerAddress, target: &ServerAddress) -> Error {
    let text = format!("the proxy cannot be reached: {}", cause.message());
    error(cause.kind(), proxy, target, &text)
}

async fn negotiate<S: ByteStream>(
    stream: &mut S,
    proxy: &ProxyOptions,
    target: &ServerAddress,
) -> Result<(), Failure> {
    let credential = proxy.credential.as_ref();
    let credential = credential.map(|(user, password)| (&**user, password.expose()));
    // SOCKS5 Support: "Drivers MUST ignore this option if it specifies a zero-length string".
    let credential = credential.filter(|credential| *credential != ("", ""));
    let (mut handshake, mut step) = Handshake::new(credential, target)?;
    let mut received = Vec::new();
    while let Step::Exchange { send, receive } = step {
        let failed = |error| Failure::Io(handshake.action(), error);
        if !send.is_empty() {
            stream.write_all(&send).await.map_err(failed)?;
            stream.flush().await.map_err(failed)?;
        }
        received.resize(receive, 0);
        stream.read_exact(&mut received).await.map_err(failed)?;
        step = handshake.next(&received)?;
    }
    Ok(())
}

/// The reason why a handshake failed.
enum Failure {
    /// The stream broke or timed out during this part of the handshake.
    Io(&'static str, io::Error),
    Problem(Problem),
}

impl Failure {
    /// Returns the kind of the error and a description of its cause.
    fn describe(&self) -> (ErrorKind, String) {
        match self {
            Self::Problem(problem) => (problem.kind(), problem.to_string()),
            Self::Io(part, error) => match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    let cause = format!("the proxy closed the connection during {part}");
                    (ErrorKind::Network, cause)
                }
                io::ErrorKind::TimedOut => (ErrorKind::Timeout, SILENT.into()),
                _ => {
                    let cause = format!("the connection to the proxy broke during {part}: {error}");
                    (ErrorKind::Network, cause)
                }
            },
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

fn error(kind: ErrorKind, proxy: &ServerAddress, target: &ServerAddress, cause: &str) -> Error {
    let text = format!("no connection to {target} through the SOCKS5 proxy {proxy}: {cause}");
    Error::new(kind, Stage::Proxy, text)
}

const SILENT: &str = "the proxy did not answer in time";

#[cfg(test)]
mod tests;
