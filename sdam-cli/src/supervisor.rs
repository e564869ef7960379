//! Notifies the supervisor of this process, such as systemd (`Type=notify`), and takes over the
//! sockets that the supervisor passes.
//!
//! A supervisor sets the variables `NOTIFY_SOCKET` and `LISTEN_FDS`. Without them, this module does
//! nothing.

#[cfg(feature = "proxy")]
use std::net::TcpListener;

#[cfg(feature = "proxy")]
use crate::failure::Failure;

/// Reports that the program is ready to serve clients.
pub(crate) fn ready() {
    #[cfg(target_os = "linux")]
    notify(sd_notify::NotifyState::Ready);
}

/// Reports that the program will end once it has served its current clients.
pub(crate) fn stopping() {
    #[cfg(target_os = "linux")]
    notify(sd_notify::NotifyState::Stopping);
}

#[cfg(target_os = "linux")]
fn notify(state: sd_notify::NotifyState<'_>) {
    // Errors are ignored, because the supervisor notices that the notification is missing.
    let _ = sd_notify::notify(&[state]);
}

/// Takes over one listening socket for each of `options`, in the same order. Returns no sockets if
/// `LISTEN_FDS` is not set, or is meant for another process.
///
/// # Errors
///
/// If there is not exactly one socket for each option, or if a socket does not listen for TCP.
#[cfg(all(target_os = "linux", feature = "proxy"))]
pub(crate) fn listeners(options: &[&str]) -> Result<Vec<TcpListener>, Failure> {
    let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(number) = read("LISTEN_FDS") else {
        return Ok(Vec::new());
    };
    if let Some(process) = read("LISTEN_PID") {
        let own = std::process::id();
        match process.parse::<u32>() {
            Ok(process) if process == own => {}
            Ok(_) => return Ok(Vec::new()),
            Err(_) => {
                let reason = format!("LISTEN_PID={process}: it needs a process id, such as {own}");
                return Err(Failure::config(reason));
            }
        }
    }
    if number == "0" {
        return Ok(Vec::new());
    }
    if number.parse() != Ok(options.len()) {
        return Err(Failure::config(format!(
            "LISTEN_FDS={number}: it needs {} of these sockets: name one ListenStream= in the socket unit \
             for each of {}",
            options.len(),
            options.join(", "),
        )));
    }
    let mut sockets = listenfd::ListenFd::from_env();
    let sockets = options.iter().enumerate().map(|(index, option)| {
        let wrong = |reason: &str| {
            Failure::config(format!(
                "LISTEN_FDS={number}: the socket for {option}: {reason}: use ListenStream=IP:PORT and \
                 Accept=no in the socket unit",
            ))
        };
        let socket = sockets.take_tcp_listener(index).map_err(|error| wrong(&error.to_string()))?;
        let socket = socket.ok_or_else(|| wrong("there is none"))?;
        if !rustix::net::sockopt::socket_acceptconn(&socket).unwrap_or_default() {
            return Err(wrong("it does not listen"));
        }
        socket.set_nonblocking(true).map_err(|error| wrong(&error.to_string()))?;
        Ok(socket)
    });
    sockets.collect()
}

#[cfg(all(not(target_os = "linux"), feature = "proxy"))]
#[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
pub(crate) fn listeners(_: &[&str]) -> Result<Vec<TcpListener>, Failure> {
    Ok(Vec::new())
}
