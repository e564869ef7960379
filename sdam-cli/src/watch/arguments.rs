//! The command line of `watch`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use sdam_events::log::{LogConfig, LogOutput};
use sdam_events::sink::Interest;

use super::player::Speed;
use crate::{
    target::Target,
    values::{defaults, seconds, size},
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

Exit codes of --once: 0 writable, 1 readable only, 2 neither. Of lines: 0 Ctrl-C or SIGTERM, or \
the end of a recording. Of the full screen: 0 left with q, Ctrl-C or SIGINT, or the terminal has gone; 143 SIGTERM, \
129 SIGHUP, 131 SIGQUIT. In any case: 3 the command line or connection string is wrong, 4 another \
failure.

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
    /// Print one JSON object for each change, instead of lines for people.
    #[arg(long)]
    pub json: bool,
    /// Wait until the topology is known, print one snapshot, and exit.
    #[arg(long)]
    pub once: bool,
    /// Time that --once waits [default: serverSelectionTimeoutMS].
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "once")]
    pub timeout: Option<Duration>,
    /// Record all inputs, events and pool commands of the client into the new file FILE, for
    /// `sdam report`, `sdam compare` and `sdam replay --trace`.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Record into numbered files of about SIZE each, such as 100M, and keep the last two.
    ///
    /// With --record rec.jsonl, these are rec.1.jsonl, rec.2.jsonl and so on; another start goes on
    /// with the next number and removes none of the earlier files. Each file is complete, because it
    /// begins with a new client, which starts before the last one ends. If a file cannot be begun,
    /// the last one grows.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "record", conflicts_with = "once")]
    pub record_max: Option<u64>,
    /// Run COMMAND by the shell when the type of the topology, the primary or the possibility of
    /// writes changes.
    ///
    /// It gets SDAM_TOPOLOGY_TYPE, SDAM_PRIMARY and SDAM_WRITABLE (1 or 0), and the topology as JSON
    /// on its standard input. One run at a time, of 10 seconds at most; changes meanwhile lead to one
    /// further run.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["once", "from"])]
    pub on_change: Option<String>,
    /// Name the place of this client in the recording, for `sdam compare`.
    #[arg(long, value_name = "NAME", requires = "record")]
    pub vantage: Option<String>,
    /// Show the recording FILE instead of a deployment; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "record", "demo"])]
    pub from: Option<PathBuf>,
    /// Playback speed, relative to the recorded one; `max` for no pauses.
    #[arg(long, value_name = "N", default_value = "1", requires = "from")]
    pub speed: Speed,
    /// Use only ASCII characters on the full screen; implied by a locale without UTF-8.
    #[arg(long)]
    pub ascii: bool,
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
