//! The command line of `explain`.

use std::time::Duration;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use sdam_core::read_preference::{ReadMode, ReadPreference, TagSet};

use crate::{
    target::Target,
    values::{seconds, some_seconds},
};

/// The text that the help shows after the options.
const AFTER: &str = "\
The defaults are those of the connection string.

Exit codes: 0 a server was selected, 2 none was or it refuses the operation, 3 the command line or \
the connection string is wrong, 4 another failure.

Example:
  sdam explain --read secondary --tags dc:ny --tags '' \\
    'mongodb://127.0.0.1:27017/?replicaSet=rs0'";

/// Selects a server for an operation, and explains the result for each of the others.
///
/// The members of the replica set that --demo simulates have the tags dc:ny,rack:1 and dc:ny,rack:2
/// and dc:la,rack:1.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Explain an operation that writes; the default is to read.
    #[arg(long, conflicts_with_all = ["read", "tags", "max_staleness"])]
    pub write: bool,
    /// The mode of the read preference.
    #[arg(long, visible_alias = "mode", value_name = "MODE", value_parser = mode(), ignore_case = true)]
    pub read: Option<ReadMode>,
    /// A tag set; give several in order of preference, with '' as the last one to accept any member.
    #[arg(long, value_name = "NAME:VALUE,...", value_parser = tags)]
    pub tags: Vec<TagSet>,
    /// Maximum lag of members.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub max_staleness: Option<Duration>,
    /// Time limit [default: serverSelectionTimeoutMS].
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    pub timeout: Option<Duration>,
}

impl Arguments {
    /// Returns the read preference that results from these arguments and from `default`, the read
    /// preference of the connection string.
    pub fn preference(&self, default: &ReadPreference) -> ReadPreference {
        let mut preference = default.clone();
        preference.mode = self.read.unwrap_or(preference.mode);
        if !self.tags.is_empty() {
            preference.tag_sets.clone_from(&self.tags);
        }
        preference.max_staleness = self.max_staleness.or(preference.max_staleness);
        preference
    }
}

/// Returns a parser for read preference modes.
fn mode() -> impl TypedValueParser<Value = ReadMode> {
    PossibleValuesParser::new(ReadMode::ALL.iter().map(|mode| mode.as_str()))
        .try_map(|name| ReadMode::parse(&name).ok_or("there is no such mode"))
}

/// Parses a tag set.
fn tags(text: &str) -> Result<TagSet, &'static str> {
    let tags = text.split(',').filter(|_| !text.is_empty());
    tags.map(|tag| tag.split_once(':')).collect::<Option<TagSet>>().ok_or(
        "a tag is a name, a colon and a value; write for example `--tags dc:ny,rack:1`, or \
             `--tags \'\'` for any member",
    )
}
