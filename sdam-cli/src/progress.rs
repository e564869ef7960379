//! Progress bars for slow work, shown on standard error if that is a terminal.

#[cfg(feature = "tui")]
pub(crate) use indicatif::ProgressBar;

/// Shows a progress bar for work that consists of `length` units. `template` is in the format of
/// `indicatif`, and may contain `{msg}`.
#[cfg(feature = "tui")]
pub(crate) fn progress(length: u64, template: &str, message: String) -> ProgressBar {
    let bar = ProgressBar::new(length).with_message(message);
    match indicatif::ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(not(feature = "tui"))]
pub(crate) fn progress(_: u64, _: &str, _: String) -> ProgressBar {
    ProgressBar
}

/// A substitute for the progress bar that shows nothing.
#[cfg(not(feature = "tui"))]
pub(crate) struct ProgressBar;

#[cfg(not(feature = "tui"))]
impl ProgressBar {
    pub(crate) fn hidden() -> Self {
        Self
    }

    pub(crate) fn wrap_read<R: std::io::BufRead>(
        &self,
        reader: R,
    ) -> impl std::io::BufRead + use<R> {
        reader
    }

    pub(crate) fn inc(&self, _: u64) {}

    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        print()
    }

    pub(crate) fn finish_and_clear(&self) {}
}
