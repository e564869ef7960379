//! The connections of a check-up: their common settings and state, and their timed steps.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use futures::{
    future::FutureExt as _,
    stream::{FuturesUnordered, StreamExt as _},
};
use sdam::{
    Clock, Criteria, ReadMode, ReadPreference, Runtime,
    client::Command,
    runtime::Backend,
    tls::{
        Rustls,
        rustls::{
            ClientConnection,
            pki_types::{CertificateDer, UnixTime},
        },
    },
};
use sdam_core::{
    address::ServerAddress,
    document::DocumentWriter,
    error::{Error, ErrorKind, Stage},
    hello::{Handshake, Hello, HelloRequest},
    options::{ConfigError, Options, TlsOptions},
    server::ServerType,
    time,
};
use sdam_transport::{
    connect::{Connection, Transport},
    error::from_wire,
    handshake::{ClientMetadata, Environment},
    layers::{Layers, Translate as _},
    race,
    tls::TlsProvider as _,
    wire::Exchange,
};
use tokio::net::{TcpStream, lookup_host};
use webpki::{EndEntityCert, KeyUsage};

use crate::{
    doctor::observation::{Dial, Greeting, Host, Login, LookUp, Reached, TlsSession},
    output::lock,
    target::Target,
};

/// The application name under which the doctor's connections appear in the servers' logs.
const NAME: &str = "sdam doctor";

/// The time limit of a step if neither `--timeout` nor `connectTimeoutMS` is given. It is the
/// default of `connectTimeoutMS`.
const STEP: Duration = Duration::from_secs(10);

/// The number of timed hello exchanges.
const ROUNDS: usize = 4;

/// The time limit for a host's other addresses once one address has accepted a connection.
const GRACE: Duration = Duration::from_secs(1);

/// The server's error code for a command that requires a login: Unauthorized.
const UNAUTHORIZED: i32 = 13;

/// The time limits of a check-up.
pub(super) struct Limits {
    clock: Arc<dyn Clock>,
    end: time::Instant,
    /// The time limit of a single step.
    pub(super) step: Duration,
    /// The time limit of all steps together.
    pub(super) all: Duration,
}

impl Limits {
    /// Creates the limits of a check-up that begins now. A step may take as long as `own`, the
    /// limit set by the user, or else as long as `client`, the limit of a client's connections.
    pub(super) fn new(backend: &Backend, own: Option<Duration>, client: Option<Duration>) -> Self {
        let step = own.or(client).unwrap_or(STEP);
        // Allow for several steps in sequence, even if the client has a short limit for a single
        // step.
        let all = own.unwrap_or(step.max(STEP)).saturating_mul(18) / 5;
        let end = backend.clock.now() + all;
        Self { clock: Arc::clone(&backend.clock), end, step, all }
    }

    /// Returns the remaining time, but at least a millisecond, because zero would mean that there
    /// is no limit.
    pub(super) fn left(&self) -> Duration {
        self.end.since(self.clock.now()).max(Duration::from_millis(1))
    }

    /// Returns the deadline of a step that begins now.
    pub(super) fn deadline(&self) -> time::Instant {
        (self.clock.now() + self.step).min(self.end)
    }

    /// Runs `step` with its time limit, which begins now. Returns `None` if the step takes too
    /// long.
    pub(super) async fn within<F: Future>(&self, step: F) -> Option<F::Output> {
        let ended = race::deadline(&*self.clock, Some(self.deadline()), step).await;
        ended.ok()
    }
}

/// The settings and the state that all connections of a check-up share.
pub(super) struct Line<'l> {
    pub(super) target: &'l Target,
    pub(super) options: &'l Options,
    pub(super) runtime: &'l Runtime,
    pub(super) limits: &'l Limits,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) hello: HelloRequest,
    /// True once a login has begun. The doctor logs in to only one server, because repeated
    /// failures may lock the account.
    pub(super) has_login: AtomicBool,
    sessions: Arc<Mutex<BTreeMap<ServerAddress, TlsSession>>>,
}

impl<'l> Line<'l> {
    /// Prepares connections, and reads the TLS files.
    pub(super) fn new(
        target: &'l Target,
        options: &'l Options,
        runtime: &'l Runtime,
        limits: &'l Limits,
    ) -> Result<Self, ConfigError> {
        let sessions = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let kept = Arc::clone(&sessions);
        let provider = Rustls::ring().with_observer(move |server, session| {
            let mut kept = lock(&kept);
            kept.insert(server.clone(), describe(session));
        });
        let transport = transport(target, options, runtime, options.tls.as_ref(), &provider)?;
        let environment = Environment::default();
        let metadata = ClientMetadata::new("sdam", env!("CARGO_PKG_VERSION"), &environment)
            .and_then(|metadata| metadata.with_application(NAME))?;
        let mut handshake = Handshake::new(metadata.encode());
        handshake.load_balanced = options.load_balanced;
        let api = options.server_api.clone().map(Arc::new);
        Ok(Self {
            target,
            options,
            runtime,
            limits,
            transport,
            hello: HelloRequest::handshake(Arc::new(handshake), api, options.handshake_opcode),
            has_login: AtomicBool::new(false),
            sessions,
        })
    }

    /// Returns the address to dial for `member`.
    pub(super) fn place(&self, member: &ServerAddress) -> ServerAddress {
        match &self.target.translate {
            Some(table) => table.translate(member),
            None => member.clone(),
        }
    }

    /// Returns the results of the TLS handshake with `server`.
    pub(super) fn session(&self, server: &ServerAddress) -> Option<TlsSession> {
        let sessions = lock(&self.sessions);
        sessions.get(server).cloned()
    }

    /// Returns a transport with the opposite TLS setting.
    pub(super) fn reverse(&self) -> Result<Arc<dyn Transport>, ConfigError> {
        let mut any = TlsOptions::default();
        any.allow_invalid_certificates = true;
        let tls = self.options.tls.is_none().then_some(&any);
        transport(self.target, self.options, self.runtime, tls, &Rustls::ring())
    }
}

/// Returns the runtime's transport with the same layers as in a client, but with the TLS settings
/// `tls`.
fn transport(
    target: &Target,
    options: &Options,
    runtime: &Runtime,
    tls: Option<&TlsOptions>,
    provider: &Rustls,
) -> Result<Arc<dyn Transport>, ConfigError> {
    let mut layers = Layers::default();
    if let Some(table) = &target.translate {
        layers.translate = Some(Arc::new(table.clone()));
    }
    layers.proxy.clone_from(&options.proxy);
    layers.tls = tls.map(|tls| provider.tls(tls)).transpose()?;
    runtime.backend.transport.with_layers(layers).ok_or_else(|| {
        ConfigError::new("tls", "", "this transport has no layers", "take another one")
    })
}

/// Describes the server's side of `session`.
fn describe(session: &ClientConnection) -> TlsSession {
    let version = session.protocol_version();
    let suite = session.negotiated_cipher_suite();
    let own = session.peer_certificates().and_then(<[_]>::first);
    let (not_after, names) = own.map(certificate).unwrap_or_default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    TlsSession {
        protocol: version.map(|version| format!("{version:?}")).unwrap_or_default(),
        cipher: suite.map(|suite| format!("{:?}", suite.suite())).unwrap_or_default(),
        not_after,
        names,
        now: now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX)),
    }
}

/// Returns the expiry of a certificate, in seconds since 1970, and its names.
fn certificate(der: &CertificateDer<'_>) -> (Option<i64>, Vec<String>) {
    let Ok(parsed) = EndEntityCert::try_from(der) else {
        return (None, Vec::new());
    };
    // Verify the certificate for a date at which it has expired, because only the resulting error
    // contains the expiry.
    let end = UnixTime::since_unix_epoch(Duration::MAX);
    let usage = KeyUsage::server_auth();
    let expiry = match parsed.verify_for_usage(&[], &[], &[], end, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            i64::try_from(not_after.as_secs()).ok()
        }
        _ => None,
    };
    (expiry, parsed.valid_dns_names().map(str::to_owned).collect())
}

impl Line<'_> {
    /// Connects to `address`, sends hello, and authenticates if requested. If the check panics, the
    /// panic is reported as an error of this host, and the other hosts are still checked.
    pub(super) async fn check(
        &self,
        address: ServerAddress,
        named_by: Option<ServerAddress>,
    ) -> (Host, Option<Login>) {
        let mut host = Host::new(address);
        host.named_by = named_by;
        let checked = AssertUnwindSafe(self.check_host(host.clone())).catch_unwind();
        checked.await.unwrap_or_else(|_| {
            let text = "the check panicked";
            let error = Error::new(ErrorKind::Internal, Stage::Hello, text);
            host.error = Some(error);
            (host, None)
        })
    }

    async fn check_host(&self, mut host: Host) -> (Host, Option<Login>) {
        if let Err(error) = self.reach(&mut host).await {
            host.error = Some(error);
            return (host, None);
        }
        match self.connect(&mut host).await {
            Ok(greeting) => host.greeting = Some(greeting),
            Err(error) => {
                host.is_reverse = self.is_reverse(&host.address, &error).await;
                host.error = Some(error);
            }
        }
        let login = self.login(&host).await;
        (host, login)
    }

    /// Looks up the host name and dials each of its addresses, unless a proxy does this.
    async fn reach(&self, host: &mut Host) -> Result<(), Error> {
        let place = self.place(&host.address);
        host.place = (place != host.address).then(|| place.clone());
        let Some(port) = place.port().filter(|_| self.options.proxy.is_none()) else {
            return Ok(());
        };
        let addresses = if let Ok(ip) = place.host().parse() {
            vec![SocketAddr::new(ip, port)]
        } else {
            let begun = Instant::now();
            let found = self.limits.within(lookup_host((place.host(), port))).await;
            let addresses = found_addresses(found)?;
            host.look_up = Some(LookUp { addresses: addresses.clone(), took: begun.elapsed() });
            addresses
        };
        host.dials = self.dial_all(&addresses).await;
        let any = |outcome: &Reached| host.dials.iter().any(|dial| dial.outcome == *outcome);
        if any(&Reached::Yes) {
            return Ok(());
        }
        let kind = if any(&Reached::Silent) { ErrorKind::Timeout } else { ErrorKind::Network };
        Err(Error::new(kind, Stage::Connect, "no address accepts connections"))
    }

    /// Dials all `addresses` at the same time. Once one address accepts, waits for the others only
    /// for [`GRACE`].
    async fn dial_all(&self, addresses: &[SocketAddr]) -> Vec<Dial> {
        let begun = Instant::now();
        let clock = &*self.runtime.backend.clock;
        let mut deadline = self.limits.deadline();
        let mut running: FuturesUnordered<_> = addresses.iter().copied().map(dial).collect();
        let mut dials = BTreeMap::new();
        while let Ok(Some(dial)) = race::deadline(clock, Some(deadline), running.next()).await {
            if dial.outcome == Reached::Yes {
                deadline = deadline.min(clock.now() + GRACE);
            }
            dials.insert(dial.to, dial);
        }
        let silent = |to| Dial { to, outcome: Reached::Silent, took: begun.elapsed() };
        addresses.iter().map(|to| dials.remove(to).unwrap_or_else(|| silent(*to))).collect()
    }

    /// Connects in the same way as a client, and sends hello.
    async fn connect(&self, host: &mut Host) -> Result<Greeting, Error> {
        let begun = Instant::now();
        let deadline = Some(self.limits.deadline());
        let connected = self.transport.connect(&host.address, deadline).await;
        let mut connection = connected?;
        host.connected = Some(begun.elapsed());
        host.session = self.session(&host.address);
        self.greet(&mut *connection, ROUNDS).await
    }

    /// Sends hello several times. Fails only if there is no valid first reply.
    async fn greet(
        &self,
        connection: &mut dyn Connection,
        rounds: usize,
    ) -> Result<Greeting, Error> {
        connection.set_max_message_size(self.options.max_hello_size);
        let mut exchange = Exchange::new();
        let first = Round::run(self, connection, &mut exchange, &self.hello).await?;
        let hello = Hello::parse(&first.body)?;
        let poll = HelloRequest::poll(hello.hello_ok, self.hello.server_api.clone());
        let mut round_trips = vec![first.took];
        let mut nearest = first;
        for _ in 1..rounds {
            let Ok(round) = Round::run(self, connection, &mut exchange, &poll).await else {
                break;
            };
            round_trips.push(round.took);
            // The shorter a round trip is, the more precisely its reply shows the server's time.
            if round.took < nearest.took {
                nearest = round;
            }
        }
        Ok(Greeting { hello, clock: nearest.clock(), round_trips })
    }

    /// Returns whether the server answers with the opposite TLS setting. If it does, the TLS
    /// setting must be the cause of `error`.
    async fn is_reverse(&self, address: &ServerAddress, error: &Error) -> bool {
        let stage = if self.options.tls.is_some() { Stage::Tls } else { Stage::Hello };
        // During the TLS handshake, a timeout may mean that the server does not use TLS and reads
        // the handshake as the beginning of a long message. In other phases, it proves nothing.
        let is_silent = error.kind() == ErrorKind::Timeout && stage == Stage::Hello;
        if error.stage() != stage || error.kind() == ErrorKind::Command || is_silent {
            return false;
        }
        let Ok(transport) = self.reverse() else {
            return false;
        };
        let deadline = Some(self.limits.deadline());
        let Ok(mut connection) = transport.connect(address, deadline).await else {
            return false;
        };
        self.options.tls.is_none() || self.greet(&mut *connection, 1).await.is_ok()
    }

    /// Authenticates to `host`, unless the host holds no data or a login to any host has already
    /// begun. Without credentials, checks whether the host requires a login.
    async fn login(&self, host: &Host) -> Option<Login> {
        let hello = &host.greeting.as_ref()?.hello;
        let holds_data = !matches!(
            hello.server_type,
            ServerType::RsArbiter | ServerType::RsGhost | ServerType::Unknown
        );
        if !holds_data {
            return None;
        }
        if self.has_login.swap(true, Ordering::Relaxed) {
            return None;
        }
        let begun = Instant::now();
        let error = self.authenticate(&host.address).await.err();
        let demands = error.as_ref().and_then(Error::code) == Some(UNAUTHORIZED);
        if self.options.credential.is_none() && !demands {
            return None;
        }
        Some(Login { server: host.address.clone(), error, took: begun.elapsed() })
    }

    async fn authenticate(&self, server: &ServerAddress) -> Result<(), Error> {
        let internal = |text: String| Error::new(ErrorKind::Internal, Stage::Auth, text);
        let mut options = self.options.clone();
        options.seeds = vec![server.clone()];
        (options.srv, options.replica_set) = (None, None);
        if !options.load_balanced {
            options.direct_connection = Some(true);
        }
        options.server_selection_timeout = self.limits.left();
        let client = self
            .target
            .builder(options)
            .client(self.runtime.clone())
            .map_err(|error| internal(error.to_string()))?;
        let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest))
            .map_err(|error| internal(error.to_string()))?;
        let mut command = DocumentWriter::new();
        if self.options.credential.is_some() {
            command.int32("ping", 1);
        } else {
            // A server that requires a login refuses this command until the client has logged in.
            command.int32("listDatabases", 1);
            command.boolean("nameOnly", true);
        }
        let command = command.finish();
        let command =
            Command::new("admin", &command).with_criteria(nearest).with_timeout(self.limits.left());
        let outcome = client.run(&command).await.map(drop).map_err(|error| {
            if error.is_network() || error.kind() == ErrorKind::Command {
                error.without_context()
            } else {
                internal(format!("{error:#}"))
            }
        });
        client.close().await;
        outcome
    }
}

async fn dial(to: SocketAddr) -> Dial {
    let begun = Instant::now();
    let outcome = match TcpStream::connect(to).await {
        Ok(_) => Reached::Yes,
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => Reached::Refused,
            io::ErrorKind::TimedOut => Reached::Silent,
            _ if lacks_descriptor(&error) => Reached::NoDescriptor,
            _ => Reached::Failed(error.to_string()),
        },
    };
    let took = begun.elapsed();
    Dial { to, outcome, took }
}

/// Returns whether `error` means that the process or the system has too many open files.
fn lacks_descriptor(error: &io::Error) -> bool {
    #[cfg(unix)]
    let codes = {
        use rustix::io::Errno;

        [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error)
    };
    #[cfg(not(unix))]
    let codes = [10_024];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// A timed reply.
struct Round {
    body: Vec<u8>,
    took: Duration,
    /// The local time when the reply arrived.
    now: SystemTime,
}

impl Round {
    async fn run(
        line: &Line<'_>,
        connection: &mut dyn Connection,
        exchange: &mut Exchange,
        hello: &HelloRequest,
    ) -> Result<Self, Error> {
        let wire = |error| from_wire(Stage::Hello, error);
        let message = exchange.hello(hello).map_err(wire)?;
        let begun = Instant::now();
        let conversation = async {
            connection.send(message).await?;
            connection.recv().await
        };
        let late = || {
            let text = "the server accepts connections but does not answer";
            Error::new(ErrorKind::Timeout, Stage::Hello, text)
        };
        let reply = line.limits.within(conversation).await.ok_or_else(late)??;
        let took = begun.elapsed();
        exchange.accept(&reply).map_err(wire)?;
        let body = reply.body().to_vec();
        let now = SystemTime::now();
        Ok(Self { body, took, now })
    }

    /// Returns the server's time minus the local time, in milliseconds. Assumes that the server
    /// read its clock half a round trip before the reply arrived.
    fn clock(&self) -> Option<i64> {
        let reply = bson::RawDocument::from_bytes(&self.body).ok()?;
        let server = reply.get_datetime("localTime").ok()?.timestamp_millis();
        let now = self.now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let own = now.checked_sub(self.took / 2)?.as_millis();
        Some(server - i64::try_from(own).ok()?)
    }
}

fn found_addresses(
    found: Option<io::Result<impl Iterator<Item = SocketAddr>>>,
) -> Result<Vec<SocketAddr>, Error> {
    let fail = |kind, text: String| Err(Error::new(kind, Stage::Dns, text));
    match found {
        None => fail(ErrorKind::Timeout, "the look-up of the name timed out".to_owned()),
        Some(Err(error)) => fail(ErrorKind::Network, error.to_string()),
        Some(Ok(addresses)) => {
            let mut addresses: Vec<_> = addresses.collect();
            addresses.dedup();
            if addresses.is_empty() {
                return fail(ErrorKind::Network, "the name has no address".to_owned());
            }
            Ok(addresses)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use sdam_core::options::Options;

    use super::*;
    use crate::{doctor::tests::Dropping, target::Target, testing::block_on};

    #[test]
    fn a_lack_of_descriptors_is_told_from_other_errors() {
        // Error 24 is EMFILE, "too many open files".
        for (code, expected) in [(24, cfg!(unix)), (22, false)] {
            assert_eq!(lacks_descriptor(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
    }

    #[test]
    fn a_silent_address_is_not_waited_for_beside_one_that_accepts() {
        let dropping = Dropping::start();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [dropping.address, listener.local_addr().unwrap()];
        let (dials, step) = block_on(async {
            let runtime = sdam::runtime::tokio().unwrap();
            let limits = Limits::new(&runtime.backend, Some(Duration::from_secs(600)), None);
            let (target, options) = (Target::default(), Options::new(Vec::new()));
            let line = Line::new(&target, &options, &runtime, &limits).unwrap();
            (line.dial_all(&addresses).await, limits.step)
        });
        let outcomes: Vec<_> = dials.iter().map(|dial| (dial.to, dial.outcome.clone())).collect();
        assert_eq!(outcomes, [(addresses[0], Reached::Silent), (addresses[1], Reached::Yes)]);
        assert!(dials[0].took < step);
    }
}
