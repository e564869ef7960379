//! Opens the listening sockets and accepts clients.

use std::{future::pending, io, net::SocketAddr, time::Duration};

use futures::future::select_all;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::sleep,
};

use super::port::Port;

/// The pause after a failed accept, for instance when no file descriptors are left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// The maximum number of connections that wait to be accepted. The value is the default of tokio.
const BACKLOG: u32 = 1024;

/// Listens on `address`. If `is_shared` is true, other proxies may listen on the same address.
pub(super) async fn bind(address: SocketAddr, is_shared: bool) -> io::Result<TcpListener> {
    if !is_shared {
        return TcpListener::bind(address).await;
    }
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    #[cfg(not(unix))]
    return Err(io::Error::other("--reuse-port: this system has no SO_REUSEPORT"));
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Waits until a client connects to one of `ports`.
pub(super) async fn accept(ports: &[(TcpListener, Port)]) -> (TcpStream, SocketAddr, Port) {
    if ports.is_empty() {
        return pending().await;
    }
    let accepts = ports.iter().map(|port| Box::pin(accept_on(port)));
    select_all(accepts).await.0
}

async fn accept_on((listener, port): &(TcpListener, Port)) -> (TcpStream, SocketAddr, Port) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => return (stream, client, port.clone()),
            Err(_) => sleep(ACCEPT_BACKOFF).await,
        }
    }
}
