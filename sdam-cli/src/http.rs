//! A minimal HTTP/1.1 server for pages: `GET` and `HEAD`, one request for each connection, and
//! limits on all input of a client.

mod request;
mod response;
#[cfg(test)]
mod tests;

use std::{future::pending, io, pin::pin, time::Duration};

use futures::{FutureExt, StreamExt, select_biased, stream::FuturesUnordered};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    time::{sleep, timeout},
};

pub use self::{
    request::{Method, Request},
    response::{Response, Status},
};

/// The maximum length of the request line with all headers, in bytes.
pub const MAX_HEAD_LENGTH: usize = 8 * 1024;
/// The maximum number of connections at a time; further ones wait.
pub const MAX_CONNECTIONS: usize = 64;
/// The time limit of a whole exchange, whichever side is slow.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept, which fails while there are no free file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Answers requests on `listener` with `answer`. Dropping it closes all connections.
pub async fn serve(listener: &TcpListener, answer: impl Fn(&Request<'_>) -> Response) {
    let mut connections = FuturesUnordered::new();
    loop {
        let has_room = connections.len() < MAX_CONNECTIONS;
        let accepted = async {
            if has_room {
                listener.accept().await
            } else {
                pending().await
            }
        };
        select_biased! {
            () = connections.select_next_some() => {}
            accepted = pin!(accepted.fuse()) => match accepted {
                Ok((stream, _)) => connections.push(async {
                    // An error of a client that disconnects or is too slow is not reported.
                    let _ = timeout(TIMEOUT, exchange(stream, &answer)).await;
                }),
                Err(_) => sleep(ACCEPT_BACKOFF).await,
            },
        }
    }
}

/// Handles one request.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: impl Fn(&Request<'_>) -> Response,
) -> io::Result<()> {
    let (method, response) = match read_head(&mut stream).await? {
        Some(head) if head.is_empty() => return Ok(()),
        Some(head) => match Request::parse(&head) {
            Ok(request) => (request.method, answer(&request)),
            Err(status) => (Method::Get, Response::of(status)),
        },
        None => (Method::Get, Response::of(Status::HEADERS_TOO_LARGE)),
    };
    stream.write_all(&response.encode(method)).await?;
    stream.shutdown().await?;
    linger(&mut stream).await
}

/// Reads up to the empty line or the end; `None` if that is too long.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !ends_head(&head) {
        if head.len() >= MAX_HEAD_LENGTH {
            return Ok(None);
        }
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        head.extend(buffer.iter().take(read));
    }
    Ok(Some(head))
}

fn ends_head(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|window| window == b"\r\n\r\n")
}

/// Reads what the client still sends: closing with unread bytes would reset the connection, and
/// the client might lose the answer.
async fn linger<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut rest = stream.take(64 * 1024);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}
