//! Relays TCP connections to the current primary of a replica set.
//!
//! `cargo run -p sdam-examples --example follow_primary [URI]`. Without a connection string, it
//! simulates a replica set. Clients connect to the printed address with `directConnection=true`,
//! because they would otherwise learn the names of the members and connect to the members directly.
//!
//! When another member becomes primary, the relays to the old primary end. Clients then reconnect
//! and reach the new primary. A failed check ends no relay, because the primary may still serve its
//! clients.
//!
//! This example is a starting point, not a relay for production: it does not support TLS with
//! clients. It does not limit the number of clients, idle connections, or the time that replies may
//! take when the primary changes. In production, use HAProxy with the configuration in
//! `deploy/haproxy`, which asks `sdam export` for the primary.

use std::{env, error::Error, io, net::SocketAddr, pin::pin, time::Duration};

use futures::{
    StreamExt,
    future::{Either, select},
};
use sdam::{
    Criteria, PoolClear, PoolContext, PoolFactory, PoolHandle, ServerAddress, Topology, runtime,
    sim::{Blueprint, Served},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    time::timeout,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The time limit for connecting to a member.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Creates the [`Dialer`] of each member.
#[derive(Debug)]
pub(crate) struct PlainSockets;

/// Opens sockets to one member. The sockets are not pooled: each one belongs to the relay that
/// opened it.
#[derive(Debug)]
pub(crate) struct Dialer(PoolContext);

impl PoolFactory for PlainSockets {
    type Pool = Dialer;

    fn create(&self, context: PoolContext) -> Dialer {
        Dialer(context)
    }
}

/// Ignores all calls of the topology. Each relay itself watches for a new primary, and a clear must
/// not end relays, because it also follows a failed check.
impl PoolHandle for Dialer {
    fn ready(&self) {}
    fn clear(&self, _: &PoolClear) {}
    fn close(&self) {}
}

impl Dialer {
    async fn dial(&self) -> io::Result<TcpStream> {
        let address = &self.0.address;
        let place = (address.host(), address.port().unwrap_or(27017));
        let socket = timeout(TIMEOUT, TcpStream::connect(place)).await??;
        socket.set_nodelay(true)?;
        Ok(socket)
    }
}

/// The reason why a relay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client or the member has closed the connection.
    Closed,
    /// Another member is primary now.
    Deposed(ServerAddress),
}

/// Relays the connections that `listener` accepts, until accepting fails.
pub(crate) async fn serve(listener: TcpListener, topology: Topology<Dialer>) -> Result<()> {
    loop {
        let (client, from) = listener.accept().await?;
        let topology = topology.clone();
        tokio::spawn(async move {
            match relay(client, from, &topology).await {
                Ok(end) => println!("{from}: {end:?}"),
                Err(error) => println!("{from}: {error}"),
            }
        });
    }
}

/// Relays a connection to the primary. Waits up to `serverSelectionTimeoutMS` until a primary is
/// known.
async fn relay(
    mut client: TcpStream,
    from: SocketAddr,
    topology: &Topology<Dialer>,
) -> Result<End> {
    client.set_nodelay(true)?;
    let primary = topology.select(&Criteria::write()).await?;
    let own = primary.address();
    // Other clients may still reach the member, so do not report this error. Request a check
    // instead, and let the monitor decide whether the member is available.
    let dialled = primary.pool().dial().await.inspect_err(|_| topology.request_check());
    let mut member = dialled.map_err(|error| format!("{own} cannot be reached: {error}"))?;
    println!("{from}: relayed to {own}");
    let relayed = copy_bidirectional(&mut client, &mut member);
    Ok(match select(pin!(relayed), pin!(other_primary(topology, own))).await {
        Either::Right((Some(other), _)) => End::Deposed(other),
        Either::Left(_) | Either::Right((None, _)) => End::Closed,
    })
}

/// Waits until a member other than `own` is primary. Returns `None` if the topology is closed.
async fn other_primary(topology: &Topology<Dialer>, own: &ServerAddress) -> Option<ServerAddress> {
    // The stream begins with the current snapshot, so no change since the selection is missed.
    let mut snapshots = topology.watch();
    while let Some(snapshot) = snapshots.next().await {
        let primary = snapshot.description().primary().map(|server| &server.address);
        if let Some(other) = primary.filter(|other| *other != own) {
            return Some(other.clone());
        }
    }
    None
}

fn main() -> Result<()> {
    let simulated =
        if env::args().len() > 1 { None } else { Some(Blueprint::replica_set(3).serve()?) };
    let given = env::args().nth(1);
    let uri = given.as_deref().or(simulated.as_ref().map(Served::uri)).unwrap_or_default();
    tokio::runtime::Runtime::new()?.block_on(async {
        let builder = Topology::builder(uri)?.pools(PlainSockets);
        let topology = builder.start(runtime::tokio()?)?;
        let listener = TcpListener::bind("127.0.0.1:27100").await?;
        println!("mongodb://{}/?directConnection=true", listener.local_addr()?);
        serve(listener, topology).await
    })
}
