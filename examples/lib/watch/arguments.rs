//! The command line of `watch`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use sdam_core::options::ConfigError;
use sdam_events::log::LogConfig;

/// The usage text.
pub const USAGE: &str = "\
usage: cargo run --example watch -- [OPTIONS] ['mongodb://...']

Shows the servers of a deployment, and every change, until Ctrl-C. Without a
connection string it starts a simulated replica set, lets its primary step down
after a few seconds, shows the failover, and ends.

options:
  --json             one JSON object for each change, instead of lines for people
  --once             wait until the topology is known, print one snapshot, end
  --record FILE      record all inputs, events and pool commands of the client,
                     for the replay example
  --timeout SECONDS  how long --once waits (default: serverSelectionTimeoutMS)
  --help             this text

The topology is known when one server has replied and all others have replied or
failed. Colours are for terminals; NO_COLOR turns them off. The variables
MONGODB_LOG_ALL, MONGODB_LOG_TOPOLOGY, MONGODB_LOG_PATH and so on configure
logging.

exit codes of --once: 0 writable, 1 readable only, 2 neither
in any case: 3 the command line or connection string is wrong, 4 other failures
";

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A request for the usage text.
    Help,
    /// A request to watch a deployment.
    Watch(Arguments),
}

/// The deployment and the options of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arguments {
    /// The connection string; `None` for a simulated deployment.
    pub uri: Option<String>,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether to end after one snapshot.
    pub once: bool,
    /// The timeout for that snapshot.
    pub timeout: Option<Duration>,
    /// The file to record to.
    pub record: Option<PathBuf>,
    /// The pause of a simulated deployment after its start, so that its discovery can be read.
    pub pause: Duration,
    /// The log configuration, which is not part of the command line.
    pub log: LogConfig,
}

impl Default for Arguments {
    /// Returns the defaults of an empty command line.
    fn default() -> Self {
        Self {
            uri: None,
            json: false,
            once: false,
            timeout: None,
            record: None,
            pause: Duration::from_secs(3),
            log: LogConfig::default(),
        }
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
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let argument = text(argument)?;
            let (name, attached) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (&*argument, None),
            };
            match (name, attached) {
                ("--help" | "-h", None) => return Ok(Self::Help),
                ("--json", None) => parsed.json = true,
                ("--once", None) => parsed.once = true,
                ("--timeout", Some(value)) => parsed.timeout = Some(seconds(value)?),
                ("--timeout", None) => {
                    let value = arguments.next().map(text).transpose()?;
                    parsed.timeout = Some(seconds(value.as_deref().unwrap_or_default())?);
                }
                ("--record", attached) => {
                    let file = match attached {
                        Some(file) => file.to_owned(),
                        None => arguments.next().map(text).transpose()?.unwrap_or_default(),
                    };
                    if file.is_empty() {
                        let remedy = "write for example `--record sdam.jsonl`";
                        return Err(wrong(name, "", "it needs the name of a file", remedy));
                    }
                    parsed.record = Some(file.into());
                }
                ("--help" | "--json" | "--once", Some(value)) => {
                    return Err(wrong(name, value, "it takes no value", "remove the value"));
                }
                (option, _) if option.starts_with('-') => {
                    return Err(wrong(option, "", "the option is unknown", "see `--help`"));
                }
                _ if parsed.uri.is_some() => {
                    // The value is not shown, because it might be a password.
                    let reason = "more than one is given";
                    let remedy = "list all hosts of the deployment in one, and quote it";
                    return Err(wrong("connection string", "", reason, remedy));
                }
                _ => parsed.uri = Some(argument),
            }
        }
        if parsed.timeout.is_some() && !parsed.once {
            let reason = "it applies to `--once` only";
            return Err(wrong(
                "--timeout",
                "",
                reason,
                "add `--once`, or remove this option",
            ));
        }
        Ok(Self::Watch(parsed))
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

fn seconds(value: &str) -> Result<Duration, ConfigError> {
    let duration = value.parse().ok().map(Duration::try_from_secs_f64);
    match duration {
        Some(Ok(duration)) => Ok(duration),
        _ => Err(wrong(
            "--timeout",
            value,
            "it needs a number of seconds",
            "write for example `--timeout 5`",
        )),
    }
}

fn wrong(option: &str, value: &str, reason: &str, remedy: &str) -> ConfigError {
    ConfigError::new(option, value, reason, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, ConfigError> {
        Command::parse(
            line.split(' ')
                .filter(|word| !word.is_empty())
                .map(OsString::from),
        )
    }

    #[test]
    fn options_may_come_in_any_order() {
        let check = |line: &str, expected: Arguments| {
            assert_eq!(parse(line), Ok(Command::Watch(expected)), "{line}");
        };
        let uri = || Some("mongodb://a/?b=c".to_owned());
        check("", Arguments::default());
        check(
            "--json mongodb://a/?b=c --once",
            Arguments {
                uri: uri(),
                json: true,
                once: true,
                ..Arguments::default()
            },
        );
        let waiting = Arguments {
            uri: uri(),
            once: true,
            timeout: Some(Duration::from_millis(2500)),
            ..Arguments::default()
        };
        check("--timeout 2.5 --once mongodb://a/?b=c", waiting.clone());
        check("mongodb://a/?b=c --once --timeout=2.5", waiting);
        let recording = Arguments {
            record: Some("a.jsonl".into()),
            ..Arguments::default()
        };
        check("--record a.jsonl", recording.clone());
        check("--record=a.jsonl", recording);
        assert_eq!(parse("--json -h"), Ok(Command::Help));
    }

    #[test]
    fn errors_name_the_argument_and_the_remedy() {
        let check = |line: &str, expected: &str| {
            assert_eq!(parse(line).unwrap_err().to_string(), expected, "{line}");
        };
        check(
            "--colour",
            "`--colour`: the option is unknown; see `--help`",
        );
        let file = "`--record`: it needs the name of a file; write for example `--record \
                    sdam.jsonl`";
        check("--record", file);
        check("--record=", file);
        check("-1", "`-1`: the option is unknown; see `--help`");
        let remedy = "it needs a number of seconds; write for example `--timeout 5`";
        check("--once --timeout", &format!("`--timeout`: {remedy}"));
        for value in ["soon", "-1", "NaN", "inf"] {
            let expected = format!("`--timeout` is `{value}`: {remedy}");
            check(&format!("--once --timeout {value}"), &expected);
        }
        check(
            "--timeout 5",
            "`--timeout`: it applies to `--once` only; add `--once`, or remove this option",
        );
        check(
            "--json=1",
            "`--json` is `1`: it takes no value; remove the value",
        );
        check(
            "mongodb://a mongodb://u:secret@b",
            "`connection string`: more than one is given; list all hosts of the deployment in one, and quote it",
        );
    }
}
