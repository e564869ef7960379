//! `proxy`: one address for the primary of a deployment, and one for reads.
//!
//! Bytes are relayed unchanged, so any driver and any authentication mechanism works. Clients must
//! not discover the members. Therefore either they connect with `directConnection=true`, or the
//! proxy changes the replies to hello (`--advertise`).

mod arguments;
mod dial;
mod frames;
mod listeners;
mod mask;
mod message;
mod meters;
mod notices;
mod pipe;
mod port;
mod relay;
mod relays;
mod status;
mod tenure;
#[cfg(test)]
mod tests;
mod visitors;

use std::{
    cell::Cell,
    future::pending,
    io::{self, Write},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
};

use futures::{FutureExt, Stream, StreamExt, channel::oneshot, future::Shared, select_biased};
use sdam::{Criteria, Options, Runtime, Topology, transport::tls::Tls};
use sdam_core::read_preference::ReadMode;
use sdam_sim::serve::ReplicaSet;
use tokio::net::TcpListener;

pub use self::arguments::{Advertised, Arguments};
use self::{
    dial::{Way, Ways},
    frames::Exchange,
    listeners::{accept, bind},
    meters::{Meters, Refused},
    notices::Notices,
    port::{Limits, Port, Served},
    relays::Relays,
    status::Status,
    visitors::Visitors,
};
use crate::{
    console::Console, descriptors, exit::Exit, failure::Failure, http, never::or_never, supervisor,
    target::Target,
};

/// Relays connections as specified by `arguments` until `signals` yields an item. After the first
/// item, the program waits for replies in progress; after the second item, it ends immediately.
///
/// The first line of the output contains the connection strings for clients.
///
/// Must be called within a tokio runtime with I/O and timers.
///
/// # Errors
///
/// If an error cannot be printed. Other errors are printed on the console and determine the exit
/// code. Notices that cannot be printed are dropped.
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

/// Yields an item for each Ctrl-C and each SIGTERM. A signal for which no handler can be installed
/// ends the process as usual.
///
/// Must be called within a tokio runtime with I/O.
#[cfg(unix)]
pub fn signals() -> impl Stream<Item = ()> {
    use tokio::signal::unix::SignalKind;

    crate::exit::received([(SignalKind::interrupt(), ()), (SignalKind::terminate(), ())])
}

/// Yields an item for each Ctrl-C.
///
/// Must be called within a tokio runtime with I/O.
#[cfg(not(unix))]
pub fn signals() -> impl Stream<Item = ()> {
    futures::stream::repeat(()).then(|()| crate::exit::interrupted())
}

/// A proxy that is ready to run: its listeners, and the topology of the deployment.
struct Proxy {
    topology: Topology<Way>,
    ports: Vec<(TcpListener, Port)>,
    uris: Vec<String>,
    warnings: Vec<String>,
    /// The listener of the pages about the proxy.
    status: Option<TcpListener>,
    meters: Arc<Meters>,
    visitors: Arc<Visitors>,
    relays: Relays,
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
        let limits = Limits::new(arguments, &options);
        let mut places = vec![("--listen", arguments.listen, Criteria::write())];
        if let Some((listen, preference)) = arguments.reads(&options.read_preference) {
            let criteria = Criteria::read(preference).map_err(Failure::config)?;
            places.push(("--listen-read", listen, criteria));
        }
        let names: Vec<_> = places.iter().map(|(option, ..)| *option).collect();
        let mut handed = supervisor::listeners(&names)?.into_iter();
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
            visitors: Visitors::new(),
            relays: Relays::new(arguments),
            topology,
            simulated,
        };
        proxy.warnings.extend(descriptors::limit().and_then(|it| proxy.relays.adapt_to(it)));
        for (option, listen, criteria) in places {
            let failed = |error: io::Error| Failure::listen(option, listen, &error);
            let listener = match handed.next() {
                Some(listener) => TcpListener::from_std(listener),
                None => bind(listen, arguments.reuse_port).await,
            };
            let listener = listener.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            proxy.uris.push(client_uri(arguments, address, &criteria, passes));
            if is_encrypted && !address.ip().is_loopback() {
                proxy.warnings.push(format!(
                    "clients speak plain text to {address}: listen on loopback, or use \
                     --tls-passthrough"
                ));
            }
            let (topology, meters) = (proxy.topology.clone(), Arc::clone(&proxy.meters));
            let visitors = Arc::clone(&proxy.visitors);
            let exchange = match (&arguments.advertise, passes) {
                (Some(_), _) => Some(Exchange::masked()),
                (None, false) => Some(Exchange::default()),
                (None, true) => None,
            };
            let port = Port { topology, criteria, limits, meters, visitors, exchange };
            proxy.ports.push((listener, port));
        }
        if let Some(listen) = arguments.status {
            let listener = TcpListener::bind(listen).await;
            let failed = |error: io::Error| Failure::listen("--status", listen, &error);
            proxy.status = Some(listener.map_err(failed)?);
        }
        Ok(proxy)
    }

    /// Prints the addresses of the proxy, and tells the supervisor that it is serving clients.
    fn announce<O: Write, R: Write>(&self, notices: &mut Notices<O, R>) -> io::Result<()> {
        for warning in &self.warnings {
            notices.warning(warning);
        }
        notices.listening(&self.uris, self.simulated.is_some())?;
        if let Some(listener) = &self.status {
            notices.status(listener.local_addr()?);
        }
        supervisor::ready();
        Ok(())
    }

    async fn run<O: Write, R: Write>(
        self,
        notices: &mut Notices<O, R>,
        signals: impl Stream<Item = ()>,
    ) -> io::Result<()> {
        self.announce(notices)?;
        let Self { topology, mut ports, status: listener, meters, visitors, mut relays, .. } = self;
        let status = Status {
            topology: &topology,
            criteria: ports.iter().map(|(_, port)| port.criteria.clone()).collect(),
            meters: &meters,
            is_stopping: Cell::new(false),
        };
        let answer = async |request: &_| status.answer(request);
        let pages = listener.map(|listener| http::serve(listener, answer, pending()));
        let mut pages = pin!(or_never(pages).fuse());
        let mut snapshots = topology.watch().fuse();
        let mut signals = pin!(signals.fuse());
        let (stop, stopped) = oneshot::channel::<()>();
        let (mut stop, stopped) = (Some(stop), stopped.shared());
        loop {
            let (client, served) = select_biased! {
                () = signals.select_next_some() => {
                    if stop.take().is_none() {
                        return Ok(());
                    }
                    supervisor::stopping();
                    status.is_stopping.set(true);
                    ports.clear();
                    if relays.len() == 0 {
                        return Ok(());
                    }
                    notices.stopping(relays.len());
                    continue;
                }
                () = pages => continue,
                snapshot = snapshots.select_next_some() => {
                    notices.primary(&snapshot);
                    continue;
                }
                ended = pin!(relays.ended().fuse()) => ended,
                (stream, client, port) = pin!(accept(&ports).fuse()) => {
                    let Err(refused) = relays.admits(client.ip()) else {
                        let (stopped, level) = (is_dropped(stopped.clone()), meters.accept());
                        relays.spawn(client, async move {
                            let served = port.serve((stream, client.ip()), stopped).await;
                            drop(level);
                            served
                        });
                        continue;
                    };
                    (client, Err(refused))
                }
            };
            match served {
                Ok(Served::Relayed) => {}
                Ok(Served::OnlyDiscovered) => {
                    meters.handles.only_hello.increment(1);
                    if visitors.left(client.ip()) {
                        notices.only_discovered(client);
                    }
                }
                Err(Refused(refusal, reason)) => {
                    meters.refused(refusal);
                    notices.refused(client, &reason);
                }
            }
            if stop.is_none() && relays.len() == 0 {
                return Ok(());
            }
        }
    }
}

/// Returns the connection string with which clients connect to the port that listens on `address`.
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

/// Resolves when the sender of `stopped` is dropped.
async fn is_dropped(stopped: Shared<oneshot::Receiver<()>>) {
    // The result is always an error, because the sender never sends a value.
    let _ = stopped.await;
}

/// Returns the TLS layer for connections to members, or `None` if the proxy relays bytes without
/// using TLS itself.
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
