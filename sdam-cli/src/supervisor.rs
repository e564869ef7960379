//! Notifies the supervisor of this process, such as systemd (`Type=notify`).
//!
//! A supervisor sets the variable `NOTIFY_SOCKET`. Without it, this module does nothing.

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
