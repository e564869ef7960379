//! The file of `--targets`, which is read again after a change and on SIGHUP.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, select_biased, stream::FusedStream};
use metrics::{describe_gauge, gauge, with_local_recorder};
use sdam::transport::clock::Clock;
use tokio::task::spawn_blocking;

use super::targets::{self, Named};
use crate::{
    exit,
    page::{Page, Registry},
};

/// The interval at which the file is read.
const PERIOD: Duration = Duration::from_secs(1);

/// A file that is watched for changes.
pub(super) struct Source {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    hangups: Box<dyn FusedStream<Item = ()> + Unpin>,
    /// The last contents, or the error in them.
    seen: Result<Vec<Named>, String>,
}

impl Source {
    /// Follows the file `path`, which contains `targets`; `None` if it can be read only once, such
    /// as a pipe. From now on, SIGHUP does not end the process.
    pub(super) fn of(path: &Path, targets: &[Named], clock: &Arc<dyn Clock>) -> Option<Self> {
        fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            path: path.to_owned(),
            clock: Arc::clone(clock),
            hangups: Box::new(exit::hangups()),
            seen: Ok(targets.to_vec()),
        })
    }

    /// Waits for the next reading, and returns the contents of the file and whether SIGHUP
    /// requested it. A change is returned after at most two seconds.
    ///
    /// The contents are compared, because a file system with a coarse clock may not update the
    /// metadata. A change is returned only after two equal readings, because a file that is being
    /// rewritten is incomplete for a moment.
    pub(super) async fn next(&mut self) -> (Result<Vec<Named>, String>, bool) {
        loop {
            let pause = self.clock.sleep_until(self.clock.now() + PERIOD);
            let is_asked = select_biased! {
                () = self.hangups.select_next_some() => true,
                () = pin!(pause.fuse()) => false,
            };
            let path = self.path.clone();
            // Read on another thread, because the file may be on a network that does not answer.
            let found = spawn_blocking(move || targets::read(&path)).await;
            let found = found.unwrap_or_else(|error| Err(error.to_string()));
            let is_settled = found == self.seen;
            self.seen = found;
            if is_asked || is_settled {
                return (self.seen.clone(), is_asked);
            }
        }
    }
}

/// Displays the option with the path of the file.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--targets {}", self.path.display())
    }
}

/// The metrics of the last reload, which have Prometheus' own names.
pub(super) struct Outcomes(Registry);

impl Outcomes {
    /// Creates the metrics after the file was read for the first time.
    pub(super) fn new(clock: &dyn Clock) -> Self {
        let registry = Registry::new(&[]);
        with_local_recorder(&registry, || {
            describe_gauge!(SUCCESSFUL, "1 if the file of --targets is in use as it is, else 0.");
            describe_gauge!(TIMESTAMP, "Time of the last successful reload of --targets.");
        });
        let outcomes = Self(registry);
        outcomes.set(true, clock);
        outcomes
    }

    /// Stores the outcome of reading the file.
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
