//! The command line of `sim`.

use std::{fmt, ops::Range, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, ValueEnum};
use sdam_core::options::Detector;

use crate::{
    simulated::Simulated,
    values::{seconds, some_seconds},
};

/// The text that the help shows after the options.
const AFTER: &str = "\
Without a scenario the primary dies after 15 s and comes back after 45 s. Times are those of the \
simulation, which begins at 2024-01-01T00:00:00Z; the intervals of the servers are those of mongod. \
The same options and the same seed, which is 0 if none is given, yield the same output.

The time without a primary begins with the step that took it away, and ends when the client knows \
the next one. Without --write-every the client only monitors; an application notices some losses \
sooner, by the errors of its operations.

Exit codes: the state at the end is 0 writable, 1 readable only, 2 neither; the worst one with \
--seeds. In any case: 3 the command line or the scenario is wrong, 4 another failure.

Examples:
  sdam sim --version 4.2 --options heartbeatFrequencyMS=1000
  printf '5s net blackhole 0\\n60s net heal\\n' | sdam sim --scenario -
  sdam sim --seeds 0..20 --write-every 0.1
  printf '5s freeze primary\\n' | sdam sim --scenario - --detector probing";

/// Simulates a deployment and a client of it in virtual time.
///
/// It shows how the client sees a failover or another scenario.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    pub(super) simulated: Simulated,
    /// Options of the client's connection string.
    #[arg(long, value_name = "NAME=VALUE&...", default_value = "", hide_default_value = true)]
    pub(super) options: String,
    /// Leave servers that have fallen silent before the time limit of their checks. No connection
    /// string contains this option.
    #[arg(long, value_name = "NAME", value_enum)]
    pub(super) detector: Option<DetectorName>,
    /// Time that the simulation continues after the last step.
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    pub(super) rest: Duration,
    /// Simulate an application that inserts a document through the client, again and again with
    /// this pause, and report how many inserts fail and how long they take.
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    pub(super) write_every: Option<Duration>,
    /// Print one JSON object for each change, like `sdam watch --json`, or with --seeds one for
    /// each seed, instead of lines for people.
    #[arg(long)]
    pub(super) json: bool,
    /// Record the client, for `sdam watch --from`, `sdam report`, `sdam compare` and `sdam replay`.
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub(super) record: Option<PathBuf>,
    /// Simulate once with each seed from A up to but excluding B, and print one line for each.
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    pub(super) seeds: Option<Seeds>,
}

/// A detector with its default settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DetectorName {
    /// Wait for a fixed time, or for many round trips.
    Probing,
    /// Wait for as long as an answer is not improbable.
    PhiAccrual,
}

impl DetectorName {
    pub(super) fn detector(self) -> Detector {
        match self {
            Self::Probing => Detector::PROBING,
            Self::PhiAccrual => Detector::PHI_ACCRUAL,
        }
    }
}

/// A non-empty range of seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub(super) Range<u64>);

impl FromStr for Seeds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ends = text.split_once("..");
        let ends = ends.and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
        ends.filter(|seeds| !seeds.is_empty())
            .map(Self)
            .ok_or("it needs a range such as 0..100, whose end is not included")
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.0.start, self.0.end)
    }
}
