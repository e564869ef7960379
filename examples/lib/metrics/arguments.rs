//! The command line of `metrics`.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use sdam_core::options::ConfigError;
use sdam_events::log::LogConfig;

/// The usage text.
pub const USAGE: &str = "\
usage: cargo run --example metrics -- [OPTIONS] ['mongodb://...']

Watches a deployment and serves pages about it over HTTP until Ctrl-C. Without a
connection string it watches a simulated replica set, whose primary steps down
every 30 seconds. The first line of the output is the address.

  /metrics            metrics, in the text format of Prometheus
  /topology           the description of the topology, as JSON
  /healthz            200 if the deployment can be written to, else 503 and why
  /healthz?read=MODE  200 if it can be read with this read preference
  /primary            the address of the primary, or 503

options:
  --listen HOST:PORT  where to serve (default: 127.0.0.1:9216); port 0 is a free
                      one
  --help              this text

The variables MONGODB_LOG_ALL, MONGODB_LOG_TOPOLOGY, MONGODB_LOG_PATH and so on
configure logging.

exit codes: 0 interrupted, 3 the command line or connection string is wrong,
4 other failures
";

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A request for the usage text.
    Help,
    /// A request to serve pages.
    Serve(Arguments),
}

/// The deployment and the address of the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arguments {
    /// The connection string; `None` for a simulated deployment.
    pub uri: Option<String>,
    /// The address on which pages are served.
    pub listen: SocketAddr,
    /// The interval between step-downs of a simulated deployment's primary.
    pub failover_period: Duration,
    /// The log configuration, which is not part of the command line.
    pub log: LogConfig,
}

impl Default for Arguments {
    /// Returns the defaults of an empty command line.
    fn default() -> Self {
        Self {
            uri: None,
            // The port that the Prometheus project has assigned to MongoDB exporters.
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9216)),
            failover_period: Duration::from_secs(30),
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
            match argument.split_once('=') {
                Some(("--listen", address)) => parsed.listen = socket_address(address)?,
                None if argument == "--listen" => {
                    let address = arguments.next().map(text).transpose()?;
                    parsed.listen = socket_address(&address.unwrap_or_default())?;
                }
                None if matches!(&*argument, "--help" | "-h") => return Ok(Self::Help),
                _ if argument.starts_with('-') => {
                    let reason = "the option is unknown";
                    return Err(ConfigError::new(argument, "", reason, "see `--help`"));
                }
                _ if parsed.uri.is_some() => {
                    // The value is not shown, because it might be a password.
                    let reason = "more than one is given";
                    let remedy = "list all hosts of the deployment in one, and quote it";
                    return Err(ConfigError::new("connection string", "", reason, remedy));
                }
                _ => parsed.uri = Some(argument),
            }
        }
        Ok(Self::Serve(parsed))
    }
}

fn text(argument: OsString) -> Result<String, ConfigError> {
    argument.into_string().map_err(|argument| {
        let shown = argument.to_string_lossy();
        ConfigError::new(
            "argument",
            shown,
            "it is not valid UTF-8",
            "encode it as UTF-8",
        )
    })
}

fn socket_address(value: &str) -> Result<SocketAddr, ConfigError> {
    value.parse().map_err(|_| {
        let reason = "it needs an IP address and a port";
        let remedy = "write for example `--listen 127.0.0.1:9216`";
        ConfigError::new("--listen", value, reason, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, ConfigError> {
        Command::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_may_come_in_any_order() {
        let check = |line: &str, uri: Option<&str>, listen: &str| {
            let expected = Arguments {
                uri: uri.map(str::to_owned),
                listen: listen.parse().unwrap(),
                ..Arguments::default()
            };
            assert_eq!(parse(line), Ok(Command::Serve(expected)), "{line}");
        };
        check("", None, "127.0.0.1:9216");
        check(
            "mongodb://a/?b=c --listen [::1]:0",
            Some("mongodb://a/?b=c"),
            "[::1]:0",
        );
        check(
            "--listen=0.0.0.0:80 mongodb://a",
            Some("mongodb://a"),
            "0.0.0.0:80",
        );
        assert_eq!(parse("mongodb://a --help"), Ok(Command::Help));
    }

    #[test]
    fn errors_name_the_argument_and_the_remedy() {
        let check = |line: &str, expected: &str| {
            assert_eq!(parse(line).unwrap_err().to_string(), expected, "{line}");
        };
        check("--port 1", "`--port`: the option is unknown; see `--help`");
        let remedy =
            "it needs an IP address and a port; write for example `--listen 127.0.0.1:9216`";
        check("--listen", &format!("`--listen`: {remedy}"));
        check("--listen 9216", &format!("`--listen` is `9216`: {remedy}"));
        check(
            "mongodb://a mongodb://u:secret@b",
            "`connection string`: more than one is given; list all hosts of the deployment in one, and quote it",
        );
    }
}
