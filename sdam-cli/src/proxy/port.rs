//! Serves the clients of a listening address: connects each of them with a member that meets the
//! criteria of the port.

use std::{
    future::{Future, poll_fn},
    net::IpAddr,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, select_biased};
use sdam::{
    Criteria, Error, ErrorReport, Options, SelectedServer, Stage, Topology,
    transport::{stream::ByteStream, system::tune_tcp},
};
use sdam_runtime_tokio::TokioStream;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

use super::{
    arguments::Arguments,
    dial::Way,
    frames::Exchange,
    meters::{Meters, Refusal, Refused},
    pipe::{Client, Pipe},
    relay::{End, Relay},
    tenure::Tenure,
    visitors::{Visit, Visitors},
};

/// The default limit for replies in progress when the program ends.
const GRACE: Duration = Duration::from_secs(10);
/// The pause before the next attempt to connect, unless the topology changes earlier.
const RETRY: Duration = Duration::from_millis(500);

/// State shared by the tasks of a port.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) topology: Topology<Way>,
    pub(super) criteria: Criteria,
    pub(super) limits: Limits,
    pub(super) meters: Arc<Meters>,
    pub(super) visitors: Arc<Visitors>,
    /// The initial state of the messages on a connection. `None` if clients speak TLS with the
    /// members, because messages then cannot be told apart.
    pub(super) exchange: Option<Exchange>,
}

/// The time limits of a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The limit for a client that waits for a member.
    pub(super) wait: Duration,
    /// The limit for connecting to a member; `None` means that only the limit of the operating
    /// system applies.
    pub(super) connect: Option<Duration>,
    /// The time after which a silent connection is closed; `None` if it is never closed.
    pub(super) idle: Option<Duration>,
    /// The limit for a reply in progress when the member loses its role.
    pub(super) drain: Duration,
    /// The limit for a reply in progress when the program ends.
    pub(super) grace: Duration,
}

impl Limits {
    pub(super) fn new(arguments: &Arguments, options: &Options) -> Self {
        Self {
            wait: options.server_selection_timeout,
            connect: options.connect_timeout,
            idle: arguments.idle,
            drain: arguments.drain.unwrap_or_default(),
            grace: arguments.drain.unwrap_or(GRACE),
        }
    }
}

/// The outcome of serving a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The client did more than discover the members; for example, it sent a command.
    Relayed,
    /// The client learned the names of members, sent nothing but hello, and left.
    OnlyDiscovered,
}

/// A selected member, and a stream to it. The selection counts as an operation on the member until
/// the `SelectedServer` is dropped.
type Found = (SelectedServer<Way>, Tenure, Box<dyn ByteStream>);

impl Port {
    /// Relays a connection of a client on `host` to a member until the client or the member closes
    /// it, the member loses its role, or `stopped` is ready.
    ///
    /// # Errors
    ///
    /// Returns the reason why the client was refused.
    pub(super) async fn serve(
        &self,
        (client, host): (TcpStream, IpAddr),
        stopped: impl Future<Output = ()>,
    ) -> Result<Served, Refused> {
        // Disable Nagle's algorithm, and enable keep-alive probes because an idle client may
        // disappear silently. A failure is harmless.
        let _ = tune_tcp(&client, None);
        let (mut client, mut up) = (TokioStream(client), Pipe::new());
        let mut stopped = pin!(stopped.fuse());
        // Wait until the client has sent something before connecting to a member for it.
        select_biased! {
            () = stopped => return Ok(Served::Relayed),
            has_left = pin!(first(&mut client, &mut up).fuse()) => if has_left {
                return Ok(Served::Relayed);
            },
            () = pin!(sleep(self.limits.wait).fuse()) => {
                let words = format!("it sent nothing for {:?}, see --wait", self.limits.wait);
                return Err(Refused(Refusal::Silent, words));
            }
        }
        let waiting = self.meters.wait();
        let found = select_biased! {
            () = stopped => return Ok(Served::Relayed),
            found = pin!(self.find().fuse()) => {
                found.map_err(|why| Refused(Refusal::NoMember, why))?
            }
            // If the client has given up, its request must no longer be executed.
            () = pin!(left(&mut client, &mut up).fuse()) => return Ok(Served::Relayed),
        };
        drop(waiting);
        let (selected, tenure, stream) = found;
        let holds = (self.topology.clone(), tenure.clone());
        let counts = (Arc::clone(&self.meters), Visit::new(Arc::clone(&self.visitors), host));
        let mut relay = Relay::new((client, up), stream, holds, counts, self.exchange.clone());
        let lost = (tenure.end(&self.topology), self.limits.drain);
        let end = relay.run(lost, (stopped, self.limits.grace), self.limits.idle).await;
        self.meters.ended(&end);
        let has_left = matches!(end, End::Client);
        self.report(&selected, &relay, end);
        if has_left && relay.has_only_discovered() {
            return Ok(Served::OnlyDiscovered);
        }
        Ok(Served::Relayed)
    }

    /// Selects a member and connects to it. Tries again until both succeed or the time limit has
    /// passed.
    async fn find(&self) -> Result<Found, String> {
        let deadline = Instant::now() + self.limits.wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let selected = self.topology.select_within(&self.criteria, left).await;
            let selected = selected.map_err(|error| error.to_string())?;
            let Some(tenure) = Tenure::begin(&selected, &self.topology.snapshot()) else {
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = self.limits.connect.map_or(left, |connect| connect.min(left));
            let mut lost = pin!(tenure.end(&self.topology).fuse());
            let opened = select_biased! {
                () = lost => continue,
                opened = pin!(selected.pool().open(Some(limit)).fuse()) => opened,
            };
            let error = match opened {
                Ok(stream) => {
                    let tenure = tenure.clone();
                    return Ok((selected, tenure, stream));
                }
                Err(error) => error,
            };
            let report = ErrorReport::new(selected.generation(), error.clone());
            selected.pool().report(&report);
            self.topology.request_check();
            if Instant::now() >= deadline {
                return Err(format!("{error:#}"));
            }
            select_biased! {
                () = lost => {}
                () = pin!(sleep(RETRY).fuse()) => {}
            }
        }
    }

    /// Reports a connection that broke during an exchange.
    ///
    /// If the member has not replied yet, the client may be at fault. The error is then reported as
    /// an error during hello, which has no effect on the topology. If the member has closed an idle
    /// connection, that is not reported, because members may do so at any time.
    fn report(&self, selected: &SelectedServer<Way>, relay: &Relay, end: End) {
        let End::Member(error) = end else {
            return;
        };
        if error.is_none() && !relay.awaits() {
            return;
        }
        let stage = if relay.has_answered() { Stage::Operation } else { Stage::Hello };
        let message = match error {
            Some(error) => format!("a relayed connection broke: {error}"),
            None => "the member closed a relayed connection before its reply".to_owned(),
        };
        let error = ErrorReport::new(selected.generation(), Error::network(stage, message));
        selected.pool().report(&error);
        // The report cancels the current check. Request another one, because unless a client is
        // waiting for a member, the next regular check would take place much later.
        self.topology.request_check();
    }
}

/// Waits until a client sends bytes. Returns true if the client has left instead.
async fn first(client: &mut Client, up: &mut Pipe) -> bool {
    !matches!(poll_fn(|cx| up.poll_fill(cx, client)).await, Ok(1..))
}

/// Reads what a waiting client sends, and returns when the client has closed its connection.
async fn left(client: &mut Client, up: &mut Pipe) {
    while !first(client, up).await {}
}
