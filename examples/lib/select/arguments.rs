//! The command line of `select`.

use std::{ffi::OsString, time::Duration};

use sdam_core::{
    options::ConfigError,
    read_preference::{ReadMode, ReadPreference, TagSet},
};

/// The usage text.
pub const USAGE: &str = "\
usage: cargo run --example select -- [OPTIONS] ['mongodb://...']

Selects a server for an operation, and explains the result for each of the
others. Without a connection string it uses a simulated replica set, whose
members have the tags dc:ny,rack:1 and dc:ny,rack:2 and dc:la,rack:1.

options:
  --write                  the operation writes; the default is to read
  --mode MODE              primary, primaryPreferred, secondary,
                           secondaryPreferred or nearest
  --tags NAME:VALUE,...    a tag set; give several in order of preference,
                           with '' as the last one to accept any member
  --max-staleness SECONDS  how far members may lag behind
  --timeout SECONDS        how long to wait (default: serverSelectionTimeoutMS)
  --loop [N]               select N times (default: 1000) from 20 tasks at once
                           and show how that loads the servers
  --help                   this text

The defaults are those of the connection string.

exit codes: 0 a server was selected, 2 none was, 3 the command line or the
connection string is wrong, 4 other failures
";

/// The default number of selections of `--loop`.
const ROUNDS: u32 = 1000;

/// The options without a value.
const FLAGS: [&str; 2] = ["--help", "--write"];

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A request for the usage text.
    Help,
    /// A request to select servers.
    Select(Arguments),
}

/// The criteria and the deployment of the selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arguments {
    /// The connection string; `None` for a simulated deployment.
    pub uri: Option<String>,
    /// Whether the operation writes.
    pub write: bool,
    /// The mode of the read preference, if it is not that of the connection string.
    pub mode: Option<ReadMode>,
    /// The tag sets, if they are not those of the connection string.
    pub tags: Vec<TagSet>,
    /// The limit on staleness, if it is not that of the connection string.
    pub max_staleness: Option<Duration>,
    /// The timeout of the selection.
    pub timeout: Option<Duration>,
    /// The number of selections, to show how they load the servers.
    pub rounds: Option<u32>,
}

impl Arguments {
    /// Returns the read preference; `default` is that of the connection string.
    pub fn preference(&self, default: &ReadPreference) -> ReadPreference {
        let mut preference = default.clone();
        preference.mode = self.mode.unwrap_or(preference.mode);
        if !self.tags.is_empty() {
            preference.tag_sets.clone_from(&self.tags);
        }
        preference.max_staleness = self.max_staleness.or(preference.max_staleness);
        preference
    }
}

impl Command {
    /// Parses the arguments that follow the program's name.
    ///
    /// # Errors
    ///
    /// The error message, with the option and the remedy.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ConfigError> {
        let mut parsed = Arguments::default();
        let words: Result<Vec<String>, _> = arguments.into_iter().map(text).collect();
        let mut words = words?.into_iter().peekable();
        while let Some(word) = words.next() {
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (&*word, None),
            };
            if let (true, Some(value)) = (FLAGS.contains(&name), &attached) {
                let remedy = "remove the value";
                return Err(wrong(name, value, "it takes no value", remedy));
            }
            let mut value = || attached.clone().or_else(|| words.next());
            match name {
                "--help" | "-h" => return Ok(Self::Help),
                "--write" => parsed.write = true,
                "--mode" => parsed.mode = Some(mode(&value().unwrap_or_default())?),
                "--tags" => parsed.tags.push(tags(value())?),
                "--max-staleness" => {
                    parsed.max_staleness = Some(seconds(name, &value().unwrap_or_default())?);
                }
                "--timeout" => parsed.timeout = Some(seconds(name, &value().unwrap_or_default())?),
                "--loop" => {
                    let number = match attached {
                        Some(value) => Some(value),
                        None => words.next_if(|next| next.parse::<u32>().is_ok()),
                    };
                    parsed.rounds = Some(number.map_or(Ok(ROUNDS), |number| rounds(&number))?);
                }
                option if option.starts_with('-') => {
                    return Err(wrong(option, "", "the option is unknown", "see `--help`"));
                }
                _ if parsed.uri.is_some() => {
                    // The value is not shown, because it might be a password.
                    let reason = "more than one is given";
                    let remedy = "list all hosts of the deployment in one, and quote it";
                    return Err(wrong("connection string", "", reason, remedy));
                }
                _ => parsed.uri = Some(word),
            }
        }
        let reads = parsed.mode.is_some() || !parsed.tags.is_empty();
        if parsed.write && (reads || parsed.max_staleness.is_some()) {
            let reason = "writes have no read preference";
            let remedy = "remove it, or remove `--mode`, `--tags` and `--max-staleness`";
            return Err(wrong("--write", "", reason, remedy));
        }
        Ok(Self::Select(parsed))
    }
}

fn text(argument: OsString) -> Result<String, ConfigError> {
    argument.into_string().map_err(|argument| {
        let shown = argument.to_string_lossy();
        wrong(
            "argument",
            &shown,
            "it is not valid UTF-8",
            "encode it as UTF-8",
        )
    })
}

fn mode(value: &str) -> Result<ReadMode, ConfigError> {
    let remedy = "use primary, primaryPreferred, secondary, secondaryPreferred or nearest";
    ReadMode::parse(value).ok_or_else(|| wrong("--mode", value, "the mode is unknown", remedy))
}

/// Parses a tag set such as `dc:ny,rack:1`; the empty string is the one that every member matches.
fn tags(value: Option<String>) -> Result<TagSet, ConfigError> {
    let remedy = "write for example `--tags dc:ny,rack:1`, or `--tags ''` for any member";
    let value = value.ok_or_else(|| wrong("--tags", "", "it needs a value", remedy))?;
    let tags = value.split(',').filter(|_| !value.is_empty());
    tags.map(|tag| tag.split_once(':'))
        .collect::<Option<TagSet>>()
        .ok_or_else(|| {
            wrong(
                "--tags",
                &value,
                "a tag is a name, a colon and a value",
                remedy,
            )
        })
}

fn seconds(option: &str, value: &str) -> Result<Duration, ConfigError> {
    let duration = value.parse().ok().map(Duration::try_from_secs_f64);
    let duration = duration.and_then(Result::ok);
    duration.ok_or_else(|| {
        let remedy = format!("write for example `{option} 120`");
        wrong(option, value, "it needs a number of seconds", &remedy)
    })
}

fn rounds(value: &str) -> Result<u32, ConfigError> {
    let number = value.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| {
        let reason = "it needs a number of selections";
        wrong("--loop", value, reason, "write for example `--loop 1000`")
    })
}

fn wrong(option: &str, value: &str, reason: &str, remedy: &str) -> ConfigError {
    ConfigError::new(option, value, reason, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Command, ConfigError> {
        Command::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn options_may_come_in_any_order() {
        let check = |words: &[&str], expected: Arguments| {
            assert_eq!(parse(words), Ok(Command::Select(expected)), "{words:?}");
        };
        check(&[], Arguments::default());
        let tags = [("dc", "ny"), ("rack", "1")].into_iter().collect();
        let picky = Arguments {
            uri: Some("mongodb://a/?b=c".to_owned()),
            mode: Some(ReadMode::Secondary),
            tags: vec![tags, TagSet::default()],
            max_staleness: Some(Duration::from_secs(120)),
            rounds: Some(ROUNDS),
            ..Arguments::default()
        };
        check(
            &[
                "--mode",
                "secondary",
                "--tags",
                "dc:ny,rack:1",
                "--tags=",
                "--loop",
                "mongodb://a/?b=c",
                "--max-staleness=120",
            ],
            picky,
        );
        let writes = Arguments {
            write: true,
            rounds: Some(7),
            timeout: Some(Duration::from_millis(500)),
            ..Arguments::default()
        };
        check(&["--loop", "7", "--write", "--timeout", ".5"], writes);
        assert_eq!(parse(&["--write", "-h"]), Ok(Command::Help));
    }

    #[test]
    fn errors_name_the_argument_and_the_remedy() {
        let check = |words: &[&str], expected: &str| {
            assert_eq!(parse(words).unwrap_err().to_string(), expected, "{words:?}");
        };
        check(
            &["--mode", "fastest"],
            "`--mode` is `fastest`: the mode is unknown; use primary, primaryPreferred, \
             secondary, secondaryPreferred or nearest",
        );
        check(
            &["--tags", "ny"],
            "`--tags` is `ny`: a tag is a name, a colon and a value; write for example `--tags \
             dc:ny,rack:1`, or `--tags ''` for any member",
        );
        check(
            &["--max-staleness", "soon"],
            "`--max-staleness` is `soon`: it needs a number of seconds; write for example \
             `--max-staleness 120`",
        );
        check(
            &["--loop=0"],
            "`--loop` is `0`: it needs a number of selections; write for example `--loop 1000`",
        );
        check(
            &["--write", "--mode=nearest"],
            "`--write`: writes have no read preference; remove it, or remove `--mode`, \
             `--tags` and `--max-staleness`",
        );
        check(
            &["--write=1"],
            "`--write` is `1`: it takes no value; remove the value",
        );
        check(&["-x"], "`-x`: the option is unknown; see `--help`");
    }
}
