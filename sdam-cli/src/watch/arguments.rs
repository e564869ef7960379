//! The command line of `watch`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use sdam_events::log::{LogConfig, LogOutput};
use sdam_events::sink::Interest;

use crate::{
    target::Target,
    values::{defaults, seconds},
};

/// The text that the help shows after the options.
const AFTER: &str = "\
On a terminal it shows a full screen; `?` lists the keys. Output that is piped, and --plain, are \
lines. The screen records everything from the start into a temporary file of up to 1 GiB, which \
the key w saves and which is removed at the end; --record FILE records into a file of your own.

The topology is known when one server has replied and all others have replied or failed.

Colours are for terminals; NO_COLOR turns them off. The variables MONGODB_LOG_ALL, \
MONGODB_LOG_TOPOLOGY, MONGODB_LOG_PATH and so on configure logging; with log messages on the \
terminal the output is lines.

Exit codes of --once: 0 writable, 1 readable only, 2 neither. Otherwise: 0 left with q or Ctrl-C, \
SIGTERM, or the terminal has gone; of the full screen also 129 SIGHUP, 131 SIGQUIT. In any case: 3 the command line or connection string is wrong, 4 another failure.

Example:
  sdam watch --once 'mongodb://127.0.0.1:27017/?replicaSet=rs0'";

/// Shows the servers of a deployment, and every change, until Ctrl-C or the key q.
///
/// With --demo, it starts a simulated replica set, makes its primary step down after a few seconds,
/// shows the failover, and exits. `sdam` without a subcommand does the same.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_help = AFTER)]
#[expect(clippy::struct_excessive_bools, reason = "each is a command line flag")]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Print lines even if standard output is a terminal, instead of the full screen.
    #[arg(long)]
    pub plain: bool,
    /// Print one JSON object with its time for each change, instead of lines for people.
    #[arg(long)]
    pub json: bool,
    /// Wait until the topology is known, print one snapshot, and exit.
    #[arg(long)]
    pub once: bool,
    /// Time that --once waits [default: serverSelectionTimeoutMS].
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "once")]
    pub timeout: Option<Duration>,
    /// Record all inputs, events and pool commands of the client into the new file FILE, for
    /// `sdam report`.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// True if the full screen can be used, because standard input and output are terminals. Not
    /// part of the command line.
    #[arg(skip)]
    pub screen: bool,
    /// The pause of a simulated deployment after its start, in which its discovery can be read.
    #[arg(skip = Duration::from_secs(3))]
    pub pause: Duration,
    /// The log configuration, which is not part of the command line.
    #[arg(skip)]
    pub log: LogConfig,
}

impl Arguments {
    /// Returns whether to use the full screen. Log messages on the terminal would corrupt it.
    pub(crate) fn wants_screen(&self) -> bool {
        let logs =
            self.log.interest() != Interest::NONE && !matches!(self.log.output, LogOutput::File(_));
        cfg!(feature = "tui") && self.screen && !(self.plain || self.json || self.once || logs)
    }
}

impl Default for Arguments {
    /// Returns the arguments of an empty command line.
    fn default() -> Self {
        defaults()
    }
}
