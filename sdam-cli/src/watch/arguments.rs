//! The command line of `watch`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use sdam_events::log::LogConfig;

use crate::{cli::seconds, target::Target};

/// What the help ends with.
const AFTER: &str = "\
The topology is known when one server has replied and all others have replied or failed.

Colours are for terminals; NO_COLOR turns them off. The variables MONGODB_LOG_ALL, \
MONGODB_LOG_TOPOLOGY, MONGODB_LOG_PATH and so on configure logging.

Exit codes of --once: 0 writable, 1 readable only, 2 neither. In any case: 3 the command line or \
connection string is wrong, 4 another failure.

Example: sdam watch --once 'mongodb://db-0.example.com/?replicaSet=rs0'";

/// Shows the servers of a deployment, and every change, until Ctrl-C.
///
/// Without a connection string it starts a simulated replica set, lets its primary step down after
/// a few seconds, shows the failover, and ends.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment; a simulated one if there is no connection string.
    pub target: Target,
    /// Print one JSON object for each change, instead of lines for people.
    #[arg(long)]
    pub json: bool,
    /// Wait until the topology is known, print one snapshot, end.
    #[arg(long)]
    pub once: bool,
    /// How long --once waits [default: serverSelectionTimeoutMS].
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "once")]
    pub timeout: Option<Duration>,
    /// Record all inputs, events and pool commands of the client, for `sdam report`, `sdam compare`
    /// and `sdam replay --trace`.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Name the place of this client in the recording, for `sdam compare`.
    #[arg(long, value_name = "NAME", requires = "record")]
    pub vantage: Option<String>,
    /// The pause of a simulated deployment after its start, so that its discovery can be read.
    #[arg(skip = PAUSE)]
    pub pause: Duration,
    /// The log configuration, which is not part of the command line.
    #[arg(skip)]
    pub log: LogConfig,
}

/// The default of [`Arguments::pause`].
const PAUSE: Duration = Duration::from_secs(3);

impl Default for Arguments {
    /// Returns the defaults of an empty command line.
    fn default() -> Self {
        Self {
            target: Target::default(),
            json: false,
            once: false,
            timeout: None,
            record: None,
            vantage: None,
            pause: PAUSE,
            log: LogConfig::default(),
        }
    }
}
