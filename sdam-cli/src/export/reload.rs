//! Reads the file of `--targets` at intervals and on SIGHUP.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, select_biased, stream::FusedStream};
use metrics::{describe_gauge, gauge, with_local_recorder};
use sdam_transport::clock::Clock;
use tokio::task::spawn_blocking;

use super::targets::{self, Targets};
use crate::{
    exit,
    file_error::cannot_read,
    input,
    page::{Page, Registry},
};

/// The interval at which the file is read again.
const PERIOD: Duration = Duration::from_secs(1);

/// The file of the targets, and its last contents.
pub(super) struct Source {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    hangups: Box<dyn FusedStream<Item = ()> + Unpin>,
    /// The deployments that were last read, or the error of the last reading.
    seen: Result<Targets, String>,
}

impl Source {
    /// Reads the file `path`, and returns its deployments and a source that follows its changes.
    /// Returns no source for a file that can be read only once, such as a pipe. Once a source
    /// exists, SIGHUP no longer ends the process.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is invalid. The error names the file, the line and the
    /// deployment, but does not show any connection string.
    pub(super) fn open(
        path: &Path,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Targets, Option<Self>), String> {
        let targets = read(path)?;
        let is_file = fs::metadata(path).is_ok_and(|it| it.is_file());
        let source = is_file.then(|| Self {
            path: path.to_owned(),
            clock: Arc::clone(clock),
            hangups: Box::new(exit::hangups()),
            seen: Ok(targets.clone()),
        });
        Ok((targets, source))
    }

    /// Waits until the targets are due to be read or SIGHUP arrives, and reads them. The second
    /// value is true if this was caused by SIGHUP.
    ///
    /// Compares the contents of the file instead of its metadata, which may stay the same because
    /// the clocks of file systems are coarse. Returns new contents only after reading them twice,
    /// because a file that is written in place is incomplete for a moment.
    pub(super) async fn next(&mut self) -> (Result<Targets, String>, bool) {
        loop {
            let pause = self.clock.sleep_until(self.clock.now() + PERIOD);
            let is_asked = select_biased! {
                () = self.hangups.select_next_some() => true,
                () = pin!(pause.fuse()) => false,
            };
            let path = self.path.clone();
            // Read on a separate thread, because the file may be on a network drive that does not
            // respond.
            let found = spawn_blocking(move || read(&path)).await;
            let found = found.unwrap_or_else(|error| Err(error.to_string()));
            let is_settled = found == self.seen;
            self.seen = found;
            if is_asked || is_settled {
                return (self.seen.clone(), is_asked);
            }
        }
    }
}

fn read(path: &Path) -> Result<Targets, String> {
    let file = format!("--targets {}", path.display());
    let text = input::read_text(path).map_err(|error| cannot_read(&file, &error))?;
    targets::parse(&text, &file, path.parent().unwrap_or(Path::new("")))
}

/// Formats the source as `--targets` with its file.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--targets {}", self.path.display())
    }
}

/// The metrics about the last reading of the targets. Their names resemble those of the metrics
/// that Prometheus has about its own configuration.
pub(super) struct Outcomes(Registry);

impl Outcomes {
    /// Creates the metrics for targets that have just been read, `invalid` of which cannot be
    /// watched.
    pub(super) fn new(invalid: usize, clock: &dyn Clock) -> Self {
        let registry = Registry::new(&[]);
        with_local_recorder(&registry, || {
            describe_gauge!(
                SUCCESSFUL,
                "1 if --targets could be used when it was last read, else 0."
            );
            describe_gauge!(INVALID, "Deployments of --targets that cannot be watched.");
            describe_gauge!(TIMESTAMP, "Time of the last successful reload of --targets.");
        });
        let outcomes = Self(registry);
        outcomes.set(Some(invalid), clock);
        outcomes
    }

    /// Updates the metrics with the outcome of reading the targets: the number of those that cannot
    /// be watched, or `None` if the file could not be used.
    pub(super) fn set(&self, invalid: Option<usize>, clock: &dyn Clock) {
        with_local_recorder(&self.0, || {
            gauge!(SUCCESSFUL).set(u8::from(invalid.is_some()));
            if let Some(invalid) = invalid {
                gauge!(INVALID).set(invalid as f64);
                gauge!(TIMESTAMP).set(clock.wall().as_millis() as f64 / 1000.0);
            }
        });
    }

    pub(super) fn page(&self) -> Page {
        self.0.page()
    }
}

const SUCCESSFUL: &str = "sdam_config_last_reload_successful";
const INVALID: &str = "sdam_config_invalid_targets";
const TIMESTAMP: &str = "sdam_config_last_reload_success_timestamp_seconds";
