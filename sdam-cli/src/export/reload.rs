//! The file of `--targets`, which is read again when it changes and at SIGHUP.

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

/// A file whose changes are noticed.
pub(super) struct Source {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    hangups: Box<dyn FusedStream<Item = ()> + Unpin>,
    /// The last contents, or what is wrong with them.
    seen: Result<Vec<Named>, String>,
}

impl Source {
    /// Follows the file `path`, which contains `targets`; `None` if it can be read only once, such
    /// as a pipe. SIGHUP does not end the process from now on.
    pub(super) fn of(path: &Path, targets: &[Named], clock: &Arc<dyn Clock>) -> Option<Self> {
        fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            path: path.to_owned(),
            clock: Arc::clone(clock),
            hangups: Box::new(exit::hangups()),
            seen: Ok(targets.to_vec()),
        })
    }

    /// Returns what the file contains after at most two seconds, or when SIGHUP asks for it, which
    /// is the second value.
    ///
    /// Contents are read, because metadata need not change with them: the clocks of file systems
    /// are coarse. They are returned once they were read twice, because a file that is written in
    /// place lacks its end for a moment.
    pub(super) async fn next(&mut self) -> (Result<Vec<Named>, String>, bool) {
        loop {
            let pause = self.clock.sleep_until(self.clock.now() + PERIOD);
            let is_asked = select_biased! {
                () = self.hangups.select_next_some() => true,
                () = pin!(pause.fuse()) => false,
            };
            let path = self.path.clone();
            // The file may be on a network that does not answer.
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

/// Names the file.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--targets {}", self.path.display())
    }
}

/// The metrics of the last reload, with Prometheus' own names for them.
pub(super) struct Outcomes(Registry);

impl Outcomes {
    /// Creates the metrics after the first reading.
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

    /// Sets the outcome of a reading.
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
