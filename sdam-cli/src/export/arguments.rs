//! The command line of `export`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use sdam_events::log::LogConfig;

use super::targets::check_name;
use crate::{
    target::Target,
    values::{defaults, listen_address},
};

/// The text that the help shows after the options.
const AFTER: &str = "\
The first line of the output is the address. The pages:

  /metrics            metrics, in the text format of Prometheus
  /topology           the description of the topology, as JSON
  /healthz            200 if the deployment can be written to, else 503 and why
  /healthz?read=MODE  200 if it can be read with this read preference; also
                      &tags=NAME:VALUE,... and &maxLag=SECONDS
  /primary            the address of the primary, or 503
  /member?server=HOST:PORT&is=ROLE
                      200 if this member has the role, else 503 and why
  /probe              the metrics of one deployment
  /-/healthy          200 while this program runs

The role is primary, secondary, or readable: any server with data, also a mongos or a server outside
any set. HOST:PORT is the member's name in the replica set. HAProxy asks for this page in its health
checks, as in deploy/haproxy: clients then always reach the primary, or a member to read from.

Pages are answered from what is known, and connect to no server. Until the first checks of a
deployment have ended, sdam_known is 0 and its other metrics are missing.

With --targets, all metrics have the label deployment, as with --name NAME, and /probe, /topology,
/healthz, /primary and /member need the parameter target=NAME. The file is TOML, with a name and a
connection string in each line:

  # Names consist of letters, digits, '-', '_' and '.'; one with dots needs quotes.
  orders = \"mongodb://127.0.0.1:27017/?replicaSet=rs0\"
  \"users.eu\" = \"mongodb+srv://users.example.com/\"
  # Secrets may be in files, whose paths are relative to the folder of this one.
  stock = { uri = \"mongodb://sdam@127.0.0.1/\", passwordFile = \"stock-password\" }
  # or, with the whole connection string: stock = { uriFile = \"stock-uri\" }

A changed file, also one that it names, is in use after two seconds, or at once at SIGHUP:
deployments start and stop, and those that are the same go on. A deployment that cannot be watched
as the file says is skipped, or stays as it was, is reported on standard error, and counts in the
metric sdam_config_invalid_targets. A file that is no TOML, cannot be read, or has no other
deployment changes nothing and sets sdam_config_last_reload_successful to 0; at the start, it ends
the program. Standard input (-) and pipes are read once.

With --demo, the first line of the output ends with (simulated), all metrics have the label
simulated=\"true\", and so has /topology.

A deployment that does not answer, or whose records cannot be looked up, counts as down (sdam_up 0);
/topology tells why. Its look-ups are repeated while the others are served.

The variables MONGODB_LOG_ALL, MONGODB_LOG_TOPOLOGY, MONGODB_LOG_PATH and so on configure logging.

Exit codes: 0 Ctrl-C or SIGTERM, 3 the command line or connection string is wrong, 4 another failure.

Example:
  sdam export --listen 127.0.0.1:9216 \\
    'mongodb://127.0.0.1:27017/?replicaSet=rs0'";

/// Serves metrics and the health of deployments over HTTP, until Ctrl-C.
///
/// The primary of the replica set that --demo simulates steps down every 30 seconds.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Watch the deployments of FILE, which is read again when it changes.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["uri", "uri_file", "password_file", "demo"])]
    pub targets: Option<PathBuf>,
    /// Name of the only deployment, for the label deployment of its metrics.
    #[arg(long, value_name = "NAME", value_parser = name, conflicts_with = "targets")]
    pub name: Option<String>,
    /// Address to serve at; port 0 chooses a free one.
    // The Prometheus project has assigned this port to MongoDB exporters.
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address, default_value = "127.0.0.1:9216")]
    pub listen: SocketAddr,
    /// The interval between step-downs of a simulated deployment's primary.
    #[arg(skip = Duration::from_secs(30))]
    pub failover_period: Duration,
    /// The log configuration, which is not part of the command line.
    #[arg(skip)]
    pub log: LogConfig,
}

impl Default for Arguments {
    /// Returns the arguments of an empty command line.
    fn default() -> Self {
        defaults()
    }
}

fn name(text: &str) -> Result<String, &'static str> {
    check_name(text).map(|()| text.to_owned())
}
