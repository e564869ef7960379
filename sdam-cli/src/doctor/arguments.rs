//! The command line of `doctor`.

use std::time::Duration;

use clap::Args;

use super::check::Check;
use crate::{cli::seconds, target::Target};

/// What the help ends with.
const AFTER: &str = "\
Every host is checked at the same time, and a failed check ends those of its host only. Nothing is \
written: the servers receive hello and, if the connection string has credentials, a login \
and ping at one of them.

Exit codes: 0 nothing worse than info, 1 the worst finding is a warning, 2 a failure, 3 the \
command line or the connection string is wrong, 4 a check could not be made.

Example: sdam doctor 'mongodb://db-0.example.com/?replicaSet=rs0'";

/// Checks a deployment from here, step by step, and says what to do about each problem.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Show also what is well.
    #[arg(long, short)]
    pub verbose: bool,
    /// Show this check alone; may be repeated.
    #[arg(long, value_name = "ID", value_parser = Only::parse)]
    pub only: Vec<Only>,
    /// Show the checks, and connect to nothing.
    #[arg(long)]
    pub list: bool,
    /// How long one step of a connection may take [default: 0.5].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
}

/// A check, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Only(pub(super) Check);

impl Only {
    fn parse(id: &str) -> Result<Self, String> {
        Check::of(id).map(Self)
    }
}
