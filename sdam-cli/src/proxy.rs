//! `proxy`: one address for the primary of a deployment, and one for reads.
//!
//! Bytes are relayed unchanged, so any driver and any authentication works. Clients must not
//! discover the members, so they connect with `directConnection=true`, or `--advertise` changes the
//! replies to hello.

mod arguments;
mod dial;
mod frames;
mod mask;
mod meters;
mod notices;
mod pipe;
mod port;
mod relay;
mod status;
mod tenure;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    collections::HashMap,
    future::{Future, pending},
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{
    FutureExt, Stream, StreamExt,
    channel::oneshot,
    future::{Shared, select_all},
    select_biased,
};
use sdam::{Criteria, Options, Runtime, Topology, transport::tls::Tls};
use sdam_core::read_preference::ReadMode;
use sdam_sim::serve::ReplicaSet;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::{self, JoinSet},
    time::sleep,
};

pub use self::arguments::{Advertised, Arguments};
use self::{
    dial::{Way, Ways},
    frames::Exchange,
    meters::{Meters, Refusal, Refused},
    notices::Notices,
    port::{Limits, Port},
    status::Status,
};
use crate::{
    console::Console, descriptors, exit::Exit, failure::Failure, http, supervisor, target::Target,
};

/// The pause after a failed accept, for instance when no file descriptors are left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// The maximum number of connections that wait to be accepted, as for other listeners.
const BACKLOG: u32 = 1024;
/// The descriptors of the program itself: its ports, and the checks of the members.
const OWN_DESCRIPTORS: u64 = 64;
/// The default time that replies in progress may take when the program ends.
const GRACE: Duration = Duration::from_secs(10);

/// Relays connections according to `arguments` until `signals` yields an item. After the first
/// item, the program waits for the replies in progress; after the second, it ends at once.
///
/// The first line of the output contains the connection strings for clients.
///
/// Must be called within a tokio runtime with I/O and timers.
///
/// # Errors
///
/// If an error cannot be printed. Other errors are printed on the console and set the exit code;
/// notices that cannot be printed are dropped.
pub async fn run<O: Write, R: Write>(
    arguments: &Arguments,
    console: Console<O, R>,
    signals: impl Stream<Item = ()>,
) -> io::Result<Exit> {
    let Console { output, mut remarks, .. } = console;
    let proxy = match Proxy::start(arguments).await {
        Ok(proxy) => proxy,
        Err(failure) => return failure.report(&mut remarks),
    };
    let mut notices = Notices::new(output, remarks, arguments.json);
    let topology = proxy.topology.clone();
    let result = proxy.run(&mut notices, signals).await;
    topology.close().await;
    Ok(match result {
        Ok(()) => Exit::SUCCESS,
        Err(error) => {
            notices.fatal(&error);
            Exit::FAILED
        }
    })
}

/// Yields an item for each Ctrl-C and each SIGTERM. A signal that cannot be handled ends the
/// process as usual.
///
/// Must be called within a tokio runtime with I/O.
#[cfg(unix)]
pub fn signals() -> impl Stream<Item = ()> {
    use tokio::signal::unix::{SignalKind, signal};

    let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
    let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok());
    let streams = signals.map(|signal| {
        Box::pin(futures::stream::unfold(signal, |mut signal| async move {
            signal.recv().await.map(|()| ((), signal))
        }))
    });
    futures::stream::select_all(streams)
}

/// Yields an item for each Ctrl-C.
///
/// Must be called within a tokio runtime with I/O.
#[cfg(not(unix))]
pub fn signals() -> impl Stream<Item = ()> {
    futures::stream::repeat(()).then(|()| crate::exit::interrupted())
}

/// The listening ports and the topology.
struct Proxy {
    topology: Topology<Way>,
    ports: Vec<(TcpListener, Port)>,
    uris: Vec<String>,
    warnings: Vec<String>,
    /// The listener of the pages about the proxy.
    status: Option<TcpListener>,
    meters: Arc<Meters>,
    max_connections: usize,
    max_per_client: Option<usize>,
    /// The remedy for a full proxy.
    bottleneck: &'static str,
    /// The simulated deployment, if one was requested.
    simulated: Option<ReplicaSet>,
}

impl Proxy {
    async fn start(arguments: &Arguments) -> Result<Self, Failure> {
        let (uri, simulated) = arguments.target.deployment(|| ReplicaSet::start(3))?;
        let runtime = arguments.target.runtime()?;
        let mut options = Target::options(&uri, &runtime.backend).await?;
        if options.direct_connection == Some(true) {
            return Err(Failure::config(
                "directConnection=true: the proxy has to know all members; remove the option from its \
                 connection string (clients of the proxy need it)",
            ));
        }
        if arguments.advertise.is_some() && arguments.tls_passthrough {
            return Err(Failure::config(
                "--advertise: replies that clients decrypt themselves cannot be changed; leave out \
                 --tls-passthrough, or let clients connect with directConnection=true",
            ));
        }
        options.server_selection_timeout =
            arguments.wait.unwrap_or(options.server_selection_timeout);
        let limits = Limits {
            wait: options.server_selection_timeout,
            connect: options.connect_timeout,
            idle: arguments.idle,
            drain: arguments.drain.unwrap_or_default(),
            grace: arguments.drain.unwrap_or(GRACE),
        };
        let mut places = vec![("--listen", arguments.listen, Criteria::write())];
        if let Some((listen, preference)) = arguments.reads(&options.read_preference) {
            let criteria = Criteria::read(preference).map_err(Failure::config)?;
            places.push(("--listen-read", listen, criteria));
        }
        let tls = layer(arguments, &options, &runtime)?;
        let passes = options.tls.is_some() && arguments.tls_passthrough;
        let builder = arguments.target.builder(options);
        let (is_encrypted, ways) = (tls.is_some(), Ways { tls });
        let topology = builder.pools(ways).start(runtime);
        let topology = topology.map_err(Failure::config)?;
        let warnings = topology.warnings().iter().map(ToString::to_string);
        let mut proxy = Self {
            warnings: warnings.collect(),
            ports: Vec::new(),
            uris: Vec::new(),
            status: None,
            meters: Meters::new(),
            max_connections: arguments.max_connections,
            max_per_client: arguments.max_per_client,
            bottleneck: "see --max-connections",
            topology,
            simulated,
        };
        if let Some(limit) = descriptors::limit() {
            proxy.adapt_to(limit);
        }
        for (option, listen, criteria) in places {
            let failed = |error: io::Error| Failure::listen(option, listen, &error);
            let listener = bind(listen, arguments.reuse_port).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            proxy.uris.push(client_uri(arguments, address, &criteria, passes));
            if is_encrypted && !address.ip().is_loopback() {
                proxy.warnings.push(format!(
                    "clients speak plain text to {address}: listen on loopback, or use \
                     --tls-passthrough"
                ));
            }
            let (topology, meters) = (proxy.topology.clone(), Arc::clone(&proxy.meters));
            let exchange = match (&arguments.advertise, passes) {
                (Some(_), _) => Some(Exchange::masked()),
                (None, false) => Some(Exchange::default()),
                (None, true) => None,
            };
            let port = Port { topology, criteria, limits, meters, exchange };
            proxy.ports.push((listener, port));
        }
        if let Some(listen) = arguments.status {
            let listener = TcpListener::bind(listen).await;
            let failed = |error: io::Error| Failure::listen("--status", listen, &error);
            proxy.status = Some(listener.map_err(failed)?);
        }
        Ok(proxy)
    }

    /// Lowers the maximum of connections to what the limit of open files admits.
    fn adapt_to(&mut self, limit: u64) {
        let left = limit - OWN_DESCRIPTORS.min(limit / 2);
        let most = usize::try_from(left / 2).unwrap_or(usize::MAX);
        if most < self.max_connections {
            self.max_connections = most;
            self.bottleneck = "raise the limit of open files (ulimit -n, LimitNOFILE=)";
            self.warnings.push(format!(
                "the limit of open files, {limit}, admits {most} connections: {}, or lower \
                 --max-connections",
                self.bottleneck,
            ));
        }
    }

    async fn run<O: Write, R: Write>(
        self,
        notices: &mut Notices<O, R>,
        signals: impl Stream<Item = ()>,
    ) -> io::Result<()> {
        for warning in &self.warnings {
            notices.warning(warning);
        }
        notices.listening(&self.uris, self.simulated.is_some())?;
        if let Some(listener) = &self.status {
            notices.status(listener.local_addr()?);
        }
        supervisor::ready();
        let status = Status {
            topology: &self.topology,
            criteria: self.ports.iter().map(|(_, port)| port.criteria.clone()).collect(),
            meters: &self.meters,
            is_stopping: Cell::new(false),
        };
        let pages = async {
            match self.status {
                Some(listener) => {
                    let answer = async |request: &_| status.answer(request);
                    http::serve(listener, answer, pending()).await;
                }
                None => pending().await,
            }
        };
        let mut pages = pin!(pages.fuse());
        let mut snapshots = self.topology.watch().fuse();
        let mut signals = pin!(signals.fuse());
        let mut ports = self.ports;
        let (stop, stopped) = oneshot::channel::<()>();
        let (mut stop, stopped) = (Some(stop), stopped.shared());
        let mut relays = Relays::default();
        loop {
            select_biased! {
                () = signals.select_next_some() => {
                    if stop.take().is_none() {
                        return Ok(());
                    }
                    supervisor::stopping();
                    status.is_stopping.set(true);
                    ports.clear();
                    if relays.tasks.is_empty() {
                        return Ok(());
                    }
                    notices.stopping(relays.tasks.len());
                }
                () = pages => {}
                snapshot = snapshots.select_next_some() => notices.primary(&snapshot),
                (client, refusal) = pin!(relays.ended().fuse()) => {
                    if let Some(Refused(refusal, reason)) = refusal {
                        self.meters.refused(refusal);
                        notices.refused(client, &reason);
                    }
                    if stop.is_none() && relays.tasks.is_empty() {
                        return Ok(());
                    }
                }
                (stream, client, port) = pin!(accept(&ports).fuse()) => {
                    let open = relays.tasks.len();
                    let own = relays.of(client.ip());
                    let (refusal, reason) = if open >= self.max_connections {
                        let words = format!("{open} connections are open, {}", self.bottleneck);
                        (Refusal::Full, words)
                    } else if self.max_per_client.is_some_and(|most| own >= most) {
                        let words = format!("{own} connections of it are open, see --max-per-client");
                        (Refusal::PerClient, words)
                    } else {
                        let (stopped, level) = (is_dropped(stopped.clone()), self.meters.accept());
                        relays.spawn(client, async move {
                            let refused = port.serve(stream, stopped).await.err();
                            drop(level);
                            refused
                        });
                        continue;
                    };
                    self.meters.refused(refusal);
                    notices.refused(client, &reason);
                }
            }
        }
    }
}

/// Returns the connection string for clients of the port that listens on `address`.
fn client_uri(
    arguments: &Arguments,
    address: SocketAddr,
    criteria: &Criteria,
    passes: bool,
) -> String {
    let Some(advertised) = &arguments.advertise else {
        let tls = if passes { "&tls=true" } else { "" };
        return format!("mongodb://{address}/?directConnection=true{tls}");
    };
    let reads = criteria.read_preference();
    let address = advertised.address(address, reads.is_none());
    match reads.map(|preference| preference.mode) {
        None | Some(ReadMode::Primary) => format!("mongodb://{address}/"),
        Some(mode) => format!("mongodb://{address}/?readPreference={mode}"),
    }
}

/// Listens on `address`, which other proxies may share.
async fn bind(address: SocketAddr, is_shared: bool) -> io::Result<TcpListener> {
    if !is_shared {
        return TcpListener::bind(address).await;
    }
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    #[cfg(not(unix))]
    return Err(io::Error::other("--reuse-port: this system has no SO_REUSEPORT"));
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The relayed connections. Dropping it closes them.
#[derive(Debug, Default)]
struct Relays {
    /// Each ends with the reason why its client was refused, if it was.
    tasks: JoinSet<Option<Refused>>,
    clients: HashMap<task::Id, SocketAddr>,
}

impl Relays {
    fn spawn(
        &mut self,
        client: SocketAddr,
        relay: impl Future<Output = Option<Refused>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(relay).id();
        self.clients.insert(id, client);
    }

    /// Returns the number of connections from this host.
    fn of(&self, host: IpAddr) -> usize {
        self.clients.values().filter(|client| client.ip() == host).count()
    }

    /// Waits for the end of a connection.
    async fn ended(&mut self) -> (SocketAddr, Option<Refused>) {
        let Some(ended) = self.tasks.join_next_with_id().await else {
            return pending().await;
        };
        let (id, refusal) = match ended {
            Ok(ended) => ended,
            Err(bug) => {
                let words = format!("a bug of this program: {bug}");
                (bug.id(), Some(Refused(Refusal::Bug, words)))
            }
        };
        match self.clients.remove(&id) {
            Some(client) => (client, refusal),
            None => pending().await,
        }
    }
}

/// Waits for a client on one of `ports`.
async fn accept(ports: &[(TcpListener, Port)]) -> (TcpStream, SocketAddr, Port) {
    if ports.is_empty() {
        return pending().await;
    }
    let accepts = ports.iter().map(|port| Box::pin(accept_on(port)));
    select_all(accepts).await.0
}

async fn accept_on((listener, port): &(TcpListener, Port)) -> (TcpStream, SocketAddr, Port) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => return (stream, client, port.clone()),
            Err(_) => sleep(ACCEPT_BACKOFF).await,
        }
    }
}

/// Becomes ready when the sender is dropped.
async fn is_dropped(stopped: Shared<oneshot::Receiver<()>>) {
    // The sender sends nothing.
    let _ = stopped.await;
}

/// Returns the TLS layer of connections to members; `None` if bytes are relayed unchanged.
fn layer(
    arguments: &Arguments,
    options: &Options,
    runtime: &Runtime,
) -> Result<Option<Arc<dyn Tls>>, Failure> {
    let Some(tls) = options.tls.as_ref().filter(|_| !arguments.tls_passthrough) else {
        return Ok(None);
    };
    if tls.certificate_key_file.is_some() && !arguments.lend_certificate {
        return Err(Failure::config(
            "tlsCertificateKeyFile: every client of this port could act as the user of the \
             certificate; remove the option, let clients show their own with --tls-passthrough, or \
             permit it with --lend-certificate",
        ));
    }
    let provider = runtime.backend.tls.as_ref();
    let provider = provider.ok_or_else(|| Failure::config("tls=true: there is no TLS library"))?;
    provider.tls(tls).map(Some).map_err(Failure::config)
}
