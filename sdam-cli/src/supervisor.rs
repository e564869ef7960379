//! Notifies the supervisor of this process, such as systemd (`Type=notify`).
//!
//! Without a supervisor, that is without the variable `NOTIFY_SOCKET`, does nothing.

/// Reports that clients are served from now on.
pub(crate) fn ready() {
    #[cfg(target_os = "linux")]
    notify(sd_notify::NotifyState::Ready);
}

/// Reports that the program ends as soon as it has served its current clients.
pub(crate) fn stopping() {
    #[cfg(target_os = "linux")]
    notify(sd_notify::NotifyState::Stopping);
}

#[cfg(target_os = "linux")]
fn notify(state: sd_notify::NotifyState<'_>) {
    // If this fails, the supervisor notices by itself that the notification is missing.
    let _ = sd_notify::notify(&[state]);
}
