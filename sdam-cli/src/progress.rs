//! The progress of long work, shown on standard error if that is a terminal.

use std::io::BufRead;

#[cfg(feature = "tui")]
use indicatif::{ProgressBar, ProgressStyle};

/// The progress of work with known length.
pub(crate) struct Progress {
    #[cfg(feature = "tui")]
    pub(crate) bar: ProgressBar,
}

#[cfg(feature = "tui")]
impl Progress {
    /// Shows the progress by a `template` of `indicatif`, which may contain `{msg}`.
    pub(crate) fn new(length: u64, template: &str, message: String) -> Self {
        let bar = ProgressBar::new(length).with_message(message);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Creates a progress that is never shown.
    pub(crate) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// Wraps `reader`, and counts the bytes that are read.
    pub(crate) fn wrap_read<R: BufRead>(&self, reader: R) -> impl BufRead + use<R> {
        self.bar.wrap_read(reader)
    }

    /// Counts one more unit of work.
    pub(crate) fn increase(&self) {
        self.bar.inc(1);
    }

    /// Hides the progress while `print` writes to the terminal.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the progress from the terminal.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A substitute that shows nothing.
#[cfg(not(feature = "tui"))]
impl Progress {
    pub(crate) fn new(_: u64, _: &str, _: String) -> Self {
        Self {}
    }

    pub(crate) fn hidden() -> Self {
        Self {}
    }

    pub(crate) fn wrap_read<R: BufRead>(&self, reader: R) -> impl BufRead + use<R> {
        reader
    }

    pub(crate) fn increase(&self) {}

    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        print()
    }

    pub(crate) fn finish(&self) {}
}
