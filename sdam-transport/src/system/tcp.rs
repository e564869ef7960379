//! TCP socket options.

#[cfg(not(windows))]
use std::os::fd::AsFd as AsSocket;
#[cfg(windows)]
use std::os::windows::io::AsSocket;
use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};

/// Sets the options of a TCP socket to a server, so that the socket sends small messages
/// immediately, and breaks within three and a half minutes after an idle peer has vanished.
///
/// `TCP_NODELAY` makes the socket send immediately. With `SO_KEEPALIVE`, the socket probes the peer
/// every 10 seconds after 2 minutes without traffic, and breaks after 9 unanswered probes. If the
/// system's own values can be read and are smaller, they are kept. The probes also keep firewalls
/// and load balancers from dropping an idle connection. No specification defines these values; they
/// are those of MongoDB's other drivers.
///
/// Probes are sent only while all sent bytes have been acknowledged. With `user_timeout`
/// (`TCP_USER_TIMEOUT`), the socket also breaks if, for that long, the peer has not acknowledged
/// sent bytes or has had no space for more. On an idle connection, the user timeout replaces the
/// number of probes. Systems other than Linux and Android ignore `user_timeout`.
///
/// # Errors
///
/// If `TCP_NODELAY` or the user timeout cannot be set.
pub fn tune_tcp(socket: &impl AsSocket, user_timeout: Option<Duration>) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    // A failure is ignored: a system that lacks one of the options keeps its own value, and any
    // connection is better than none.
    let _ = socket.set_tcp_keepalive(&keep_alive(&socket));
    limit_silence(&socket, user_timeout)
}

/// Sets the user timeout, if there is one.
#[cfg(any(target_os = "android", target_os = "linux"))]
fn limit_silence(socket: &SockRef<'_>, user_timeout: Option<Duration>) -> io::Result<()> {
    /// The maximum that the system accepts, about 25 days.
    const MAX: Duration = Duration::from_millis(i32::MAX as u64);
    user_timeout.map_or(Ok(()), |time| socket.set_tcp_user_timeout(Some(time.min(MAX))))
}

#[cfg(not(any(target_os = "android", target_os = "linux")))]
fn limit_silence(_: &SockRef<'_>, _: Option<Duration>) -> io::Result<()> {
    Ok(())
}

#[cfg(any(
    target_os = "android",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
    target_vendor = "apple",
))]
fn keep_alive(socket: &SockRef<'_>) -> TcpKeepalive {
    /// The number of unanswered probes that break the connection.
    const PROBES: u32 = 9;
    let limited = |own: io::Result<Duration>, limit| own.map_or(limit, |own| own.min(limit));
    let probes = socket.tcp_keepalive_retries();
    TcpKeepalive::new()
        .with_time(limited(socket.tcp_keepalive_time(), IDLE))
        .with_interval(limited(socket.tcp_keepalive_interval(), INTERVAL))
        .with_retries(probes.map_or(PROBES, |own| own.min(PROBES)))
}

/// Returns the options with only the values that can be set on this system. On the systems that
/// this function is for, either the current values cannot be read, or not all values can be set.
#[cfg(not(any(
    target_os = "android",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
    target_vendor = "apple",
)))]
fn keep_alive(_: &SockRef<'_>) -> TcpKeepalive {
    let keep_alive = TcpKeepalive::new().with_time(IDLE);
    #[cfg(windows)]
    let keep_alive = keep_alive.with_interval(INTERVAL);
    keep_alive
}

/// The time without traffic until the first probe.
const IDLE: Duration = Duration::from_secs(120);
/// The time between probes.
const INTERVAL: Duration = Duration::from_secs(10);

#[cfg(all(test, target_os = "linux"))]
mod tests;
