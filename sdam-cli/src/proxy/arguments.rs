//! The command line of `proxy`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use sdam_core::{
    address::ServerAddress,
    options::ConfigError,
    read_preference::{ReadMode, ReadPreference, TagSet},
};

use crate::{
    explain::{mode, tags},
    target::Target,
    values::{defaults, listen_address, seconds, whole},
};

/// The text that the help shows after the options.
const AFTER: &str = "\
The first line of the output is the connection string for clients, and behind a space that of the \
port for reads. It has directConnection=true: otherwise a client learns the members' names from the \
first reply and connects to them, past the proxy. Add user, password and authSource to it; the proxy \
needs none.

With --advertise HOST, replies to hello look like those of a mongos, without names of members and \
without topologyVersion, so that monitors ask regularly. Any driver then stays with the proxy, and a \
connection string may name several proxies as hosts; it must have no replicaSet. On the port for \
reads, clients need the mode of the printed connection string, because a secondary refuses reads of \
mode primary.

Connections to the port for reads may lead to different members, so a client that reads cursors of \
several batches needs maxPoolSize=1, or --tags for a single member.

When the primary changes, every relayed connection to the old one is closed, so that clients connect \
again and reach the new one. Nothing is sent to a member that is known not to be primary. The proxy \
learns that when a driver would; an operation that the old primary has accepted before may be lost.

With proxyHost the proxy reaches the members through that SOCKS5 proxy, for clients as well. With \
tls=true it speaks TLS with the members and checks their certificates; clients speak plain text with \
the proxy. It shows them a certificate of its own, which may be a user's, only with \
--lend-certificate. With --tls-passthrough clients speak TLS with the members \
themselves; they have to accept that the certificate does not name the proxy, or use a name of the \
member for it.

With --status IP:PORT, /metrics counts connections, refusals, bytes and the time to the first byte \
of replies; /healthz is 200 if clients reach a member, and 503 while the proxy stops. \
sdam_proxy_only_hello_total counts clients that left after hello, as drivers do that connect to the \
members themselves; the first one whose host sends nothing else is also told on standard error.

To replace a running proxy, start both with --reuse-port, the new one first, and stop the old one: it \
accepts no further clients, and finishes the exchanges of its own. Sockets that systemd hands over \
(LISTEN_FDS) replace --listen and --listen-read, in this order. systemd keeps them open, so \
connections wait during a restart, and a new process with the same sockets may serve while the old \
one finishes.

The first Ctrl-C or SIGTERM closes connections once their replies are complete, the second at once. \
With --tls-passthrough the proxy cannot see where a reply ends, and takes 100 ms of silence for it.

Exit codes: 0 Ctrl-C or SIGTERM, 3 the command line or the connection string is wrong, 4 another failure.

Example, also with a port for reads:
  sdam proxy --listen 127.0.0.1:27117 \\
    --listen-read 127.0.0.1:27118 --read secondary \\
    'mongodb://127.0.0.1:27017/?replicaSet=rs0'";

/// Relays connections to the current primary: clients connect to one address.
///
/// The replica set that --demo simulates acknowledges writes but stores nothing; the first line of
/// the output then ends with (simulated), and with --json the first object says so.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = AFTER)]
#[expect(clippy::struct_excessive_bools, reason = "each is a command line flag")]
#[non_exhaustive]
pub struct Arguments {
    #[command(flatten)]
    /// The deployment.
    pub target: Target,
    /// Address at which clients reach the primary; port 0 chooses a free one.
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address, default_value = "127.0.0.1:27117")]
    pub listen: SocketAddr,
    /// Address at which clients reach a member by --read and --tags [default: 127.0.0.1:27118 with
    /// --read or --tags, else none].
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address)]
    pub listen_read: Option<SocketAddr>,
    /// The mode of the read preference [default: the connection string's].
    #[arg(long, value_name = "MODE", value_parser = mode(), ignore_case = true)]
    pub read: Option<ReadMode>,
    /// A tag set; give several in order of preference, with '' as the last one to accept any member.
    #[arg(long, value_name = "NAME:VALUE,...", value_parser = tags)]
    pub tags: Vec<TagSet>,
    /// Answer hello as a mongos, so that clients without directConnection=true do not connect to the
    /// members, and print connection strings with this host [default port: that of --listen, and for
    /// reads always that of --listen-read].
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise: Option<Advertised>,
    /// Time that a new connection waits for its first request, and then for a member, before it is
    /// closed [default: serverSelectionTimeoutMS].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub wait: Option<Duration>,
    /// Time that replies in progress may take before their connection is closed [default: 0 when
    /// the primary changes, 10 when the proxy stops].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub drain: Option<Duration>,
    /// Maximum number of concurrent client connections; further ones are closed. Each takes two
    /// file descriptors.
    #[arg(
        long, value_name = "N", value_parser = whole::<usize>(1..=1_000_000),
        default_value_t = 1000
    )]
    pub max_connections: usize,
    /// Maximum number of concurrent connections from one address [default: none].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1_000_000))]
    pub max_per_client: Option<usize>,
    /// Close connections on which nothing was sent for this time, unless a reply is outstanding
    /// [default: never].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub idle: Option<Duration>,
    /// Share the ports with other proxies, so that a new one can be started before the old one is
    /// stopped (SO_REUSEPORT).
    #[arg(long)]
    pub reuse_port: bool,
    /// Address of pages about the proxy: /metrics, /healthz and /-/healthy [default: none].
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address)]
    pub status: Option<SocketAddr>,
    /// Relay the bytes of clients that use TLS with the members themselves.
    #[arg(long)]
    pub tls_passthrough: bool,
    /// Show the members the certificate of tlsCertificateKeyFile for every client.
    ///
    /// Every client that can connect to the proxy can then authenticate as the user of the
    /// certificate, with MONGODB-X509 and no password.
    #[arg(long, conflicts_with = "tls_passthrough")]
    pub lend_certificate: bool,
    /// Print addresses, changes and refusals as JSON, one object a line, on standard output.
    #[arg(long)]
    pub json: bool,
}

/// The host at which clients reach the proxy, and the port if it differs from the port of the
/// listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised(String, Option<u16>);

impl FromStr for Advertised {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let address = ServerAddress::parse(text)?;
        let has_port = text.rsplit_once(':').is_some_and(|(_, rest)| !rest.ends_with(']'));
        let port = address.port().filter(|_| has_port);
        if address.is_unix() {
            let remedy = "write the host or IP address by which clients reach the proxy";
            return Err(ConfigError::new("advertise", text, "it is a path", remedy));
        }
        Ok(Self(address.host().to_owned(), port))
    }
}

impl Advertised {
    /// Returns the advertised address of the port that listens on `own`. `is_first` is true for the
    /// port of --listen.
    pub(super) fn address(&self, own: SocketAddr, is_first: bool) -> ServerAddress {
        let port = self.1.filter(|_| is_first);
        ServerAddress::new(&self.0, port.unwrap_or(own.port()))
    }
}

/// The default value of [`Arguments::listen_read`].
const LISTEN_READ: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 27118);

impl Arguments {
    /// Returns the address to listen on for reads, and the read preference of these reads.
    /// `default` is the read preference of the connection string.
    pub(super) fn reads(&self, default: &ReadPreference) -> Option<(SocketAddr, ReadPreference)> {
        let asked = self.read.is_some() || !self.tags.is_empty();
        let listen = self.listen_read.or(asked.then_some(LISTEN_READ))?;
        let mut preference = default.clone();
        preference.mode = self.read.unwrap_or(preference.mode);
        if !self.tags.is_empty() {
            preference.tag_sets.clone_from(&self.tags);
        }
        Some((listen, preference))
    }
}

impl Default for Arguments {
    /// Returns the arguments of an empty command line.
    fn default() -> Self {
        defaults()
    }
}
