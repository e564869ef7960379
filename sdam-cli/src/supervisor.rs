//! Messages to the supervisor of this process, such as systemd (`Type=notify`).
//!
//! Without a supervisor, that is without the variable `NOTIFY_SOCKET`, they do nothing.

/// Reports that clients are served from now on.
pub(crate) fn ready() {
    #[cfg(target_os = "linux")]
    notify(sd_notify::NotifyState::Ready);
}

/// Reports that the program ends as soon as its clients are done.
pub(crate) fn stopping() {
    #[cfg(target_os = "linux")]
    notify(sd_notify::NotifyState::Stopping);
}

#[cfg(target_os = "linux")]
fn notify(state: sd_notify::NotifyState<'_>) {
    // A supervisor that cannot be reached will notice by itself.
    let _ = sd_notify::notify(&[state]);
}
