//! Reads the file or URL of `--targets` at intervals and on SIGHUP.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, select_biased, stream::FusedStream};
use hyper::Uri;
use metrics::{describe_gauge, gauge, with_local_recorder};
use sdam::transport::clock::Clock;
use tokio::task::spawn_blocking;

use super::{
    fetch, list,
    targets::{self, Named},
};
use crate::{
    exit,
    file_error::cannot_read,
    input,
    page::{Page, Registry},
    target::shown_url,
};

/// The interval at which a targets file is read again.
const PERIOD: Duration = Duration::from_secs(1);

/// The file or URL of the targets, and their last contents.
pub(super) struct Source {
    place: Place,
    clock: Arc<dyn Clock>,
    hangups: Box<dyn FusedStream<Item = ()> + Unpin>,
    /// The pause before the next reading, and the interval between later readings.
    pause: (Duration, Duration),
    /// The deployments that were last read, or the error of the last reading.
    seen: Result<Vec<Named>, String>,
}

enum Place {
    File(PathBuf),
    Url(Uri),
}

impl Source {
    /// Reads the file `path`, and returns its deployments and a source that follows its changes. If
    /// `path` is a URL, it is not read yet: [`next`](Self::next) reads it, first at once and then
    /// at intervals of `refresh`. Returns no source for a file that can be read only once, such as
    /// a pipe. Once a source exists, SIGHUP no longer ends the process.
    ///
    /// # Errors
    ///
    /// If the file, or a file named in it, cannot be read or is invalid. The error names the file,
    /// the line and the deployment, but does not show any connection string.
    pub(super) fn open(
        path: &Path,
        refresh: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Vec<Named>, Option<Self>), String> {
        let follow = |place, pause, targets: &[_]| Self {
            place,
            clock: Arc::clone(clock),
            hangups: Box::new(exit::hangups()),
            pause,
            seen: Ok(targets.to_vec()),
        };
        if let Some(url) = path.to_str().filter(|path| path.contains("://")) {
            let place = Place::Url(fetch::url(url)?);
            return Ok((Vec::new(), Some(follow(place, (Duration::ZERO, refresh), &[]))));
        }
        let targets = read(path)?;
        let is_file = fs::metadata(path).is_ok_and(|it| it.is_file());
        let source =
            is_file.then(|| follow(Place::File(path.to_owned()), (PERIOD, PERIOD), &targets));
        Ok((targets, source))
    }

    /// Returns whether the targets have been read; false only before a URL is read for the first
    /// time.
    pub(super) fn is_read(&self) -> bool {
        !self.pause.0.is_zero()
    }

    /// Waits until the targets are due to be read or SIGHUP arrives, and reads them. The second
    /// value is true if this was caused by SIGHUP.
    ///
    /// Compares the contents of a file instead of its metadata, which may stay the same because the
    /// clocks of file systems are coarse. Returns new contents only after reading them twice,
    /// because a file that is written in place is incomplete for a moment.
    pub(super) async fn next(&mut self) -> (Result<Vec<Named>, String>, bool) {
        loop {
            let pause = self.clock.sleep_until(self.clock.now() + self.pause.0);
            let is_asked = select_biased! {
                () = self.hangups.select_next_some() => true,
                () = pin!(pause.fuse()) => false,
            };
            self.pause.0 = self.pause.1;
            let (found, is_whole) = match &self.place {
                Place::File(path) => {
                    let path = path.clone();
                    // Read on a separate thread, because the file may be on a network drive that
                    // does not respond.
                    let found = spawn_blocking(move || read(&path)).await;
                    (found.unwrap_or_else(|error| Err(error.to_string())), false)
                }
                Place::Url(url) => {
                    let text = fetch::get(url).await;
                    let text = text.map_err(|said| format!("{self}: {said}"));
                    (text.and_then(|text| list::parse(&text, &self.to_string())), true)
                }
            };
            let is_settled = is_whole || found == self.seen;
            self.seen = found;
            if is_asked || is_settled {
                return (self.seen.clone(), is_asked);
            }
        }
    }
}

/// Reads a targets file, which is a list in JSON if its name ends with `.json`, and TOML otherwise.
fn read(path: &Path) -> Result<Vec<Named>, String> {
    let file = format!("--targets {}", path.display());
    let text = input::read_text(path).map_err(|error| cannot_read(&file, &error))?;
    if path.extension().is_some_and(|extension| extension == "json") {
        return list::parse(&text, &file);
    }
    targets::parse(&text, &file, path.parent().unwrap_or(Path::new("")))
}

/// Formats the source as `--targets` with its file or URL.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File(path) => write!(f, "--targets {}", path.display()),
            Place::Url(url) => write!(f, "--targets {}", shown_url(&url.to_string())),
        }
    }
}

/// The metrics about the last reading of the targets. Their names resemble those of the metrics
/// that Prometheus has about its own configuration.
pub(super) struct Outcomes(Registry);

impl Outcomes {
    /// Creates the metrics. `is_read` tells whether the targets have already been read.
    pub(super) fn new(is_read: bool, clock: &dyn Clock) -> Self {
        let registry = Registry::new(&[]);
        with_local_recorder(&registry, || {
            describe_gauge!(SUCCESSFUL, "1 if the targets are those of --targets, else 0.");
            describe_gauge!(TIMESTAMP, "Time of the last successful reload of --targets.");
        });
        let outcomes = Self(registry);
        outcomes.set(is_read, clock);
        outcomes
    }

    /// Updates the metrics with the outcome of reading the targets.
    pub(super) fn set(&self, is_successful: bool, clock: &dyn Clock) {
        with_local_recorder(&self.0, || {
            gauge!(SUCCESSFUL).set(u8::from(is_successful));
            if is_successful {
                gauge!(TIMESTAMP).set(clock.wall().as_millis() as f64 / 1000.0);
            }
        });
    }

    pub(super) fn page(&self) -> Page {
        self.0.page()
    }
}

const SUCCESSFUL: &str = "sdam_config_last_reload_successful";
const TIMESTAMP: &str = "sdam_config_last_reload_success_timestamp_seconds";
