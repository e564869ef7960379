//! One relayed connection: bytes in both directions while the member keeps its role.

use std::{
    future::{Future, pending, poll_fn},
    io,
    pin::pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, select_biased};
use sdam::{Topology, transport::stream::ByteStream};
use tokio::time::{Instant, sleep_until};

use super::{
    dial::Way,
    pipe::{Client, Pipe},
    tenure::Tenure,
};

/// The duration of silence after which a member's reply counts as complete.
const SETTLE: Duration = Duration::from_millis(100);

/// The reason why a relayed connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it.
    Client,
    /// The member closed it, or it broke.
    Member(Option<io::Error>),
    /// The member lost its role, or the program is ending.
    Closed,
}

/// The two sockets, and the bytes in transit between them.
#[derive(Debug)]
pub(super) struct Relay {
    client: Client,
    member: Box<dyn ByteStream>,
    up: Pipe,
    down: Pipe,
    topology: Topology<Way>,
    tenure: Tenure,
    /// True if the member owes a reply, because it received the last bytes.
    awaits: bool,
    /// The time when the member last sent something.
    heard: Option<Instant>,
    /// True if data from the client is forwarded to the member.
    forwards: bool,
}

impl Relay {
    /// Connects `client`, whose first bytes are in `up`, to `member`.
    pub(super) fn new(
        (client, up): (Client, Pipe),
        member: Box<dyn ByteStream>,
        (topology, tenure): (Topology<Way>, Tenure),
    ) -> Self {
        Self {
            client,
            member,
            up,
            down: Pipe::new(),
            topology,
            tenure,
            awaits: false,
            heard: None,
            forwards: true,
        }
    }

    /// Returns whether the member has answered.
    pub(super) fn has_answered(&self) -> bool {
        self.heard.is_some()
    }

    /// Returns whether a reply of the member is outstanding.
    pub(super) fn awaits(&self) -> bool {
        self.awaits
    }

    /// Relays until one side closes the connection, or until `lost` or `stopped`, after which a
    /// reply may take the given time.
    ///
    /// After the loss of the role, the member is sent nothing more.
    pub(super) async fn run(
        &mut self,
        (lost, patience): (impl Future<Output = ()>, Duration),
        (stopped, grace): (impl Future<Output = ()>, Duration),
    ) -> End {
        let (mut lost, mut stopped) = (pin!(lost.fuse()), pin!(stopped.fuse()));
        let mut limit = None;
        loop {
            let due = match limit {
                Some(limit) => match self.due(limit) {
                    Some(due) => Some(due),
                    None => return End::Closed,
                },
                None => None,
            };
            let timer = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            select_biased! {
                () = lost => {
                    self.forwards = false;
                    limit = Some(sooner(limit, patience));
                }
                () = stopped => limit = Some(sooner(limit, grace)),
                () = pin!(timer.fuse()) => {}
                end = poll_fn(|cx| self.poll(cx)).fuse() => return end,
            }
        }
    }

    /// Returns when to check again whether a connection to be closed by `limit` is idle; `None` if
    /// it is, or if the limit has passed.
    fn due(&self, limit: Instant) -> Option<Instant> {
        let now = Instant::now();
        if now >= limit {
            return None;
        }
        if self.awaits || !self.down.is_empty() {
            return Some(limit);
        }
        let settled = self.heard? + SETTLE;
        (now < settled).then_some(limit.min(settled))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if let Poll::Ready(end) = self.poll_down(cx) {
            return Poll::Ready(end);
        }
        self.poll_up(cx)
    }

    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            if self.down.is_empty() {
                match ready!(self.down.poll_fill(cx, &mut self.member)) {
                    Ok(0) => return Poll::Ready(End::Member(None)),
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(End::Member(Some(error))),
                }
                self.awaits = false;
                self.heard = Some(Instant::now());
            }
            if ready!(self.down.poll_drain(cx, &mut self.client)).is_err() {
                return Poll::Ready(End::Client);
            }
        }
    }

    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            if self.up.is_empty() {
                if let Poll::Ready(Err(error)) = self.up.poll_flush(cx, &mut self.member) {
                    return Poll::Ready(End::Member(Some(error)));
                }
                match ready!(self.up.poll_fill(cx, &mut self.client)) {
                    Ok(0) | Err(_) => return Poll::Ready(End::Client),
                    Ok(_) => {}
                }
            }
            // Checked before every write, so that the member gets nothing after its loss is known,
            // even if this task has not been woken yet.
            if !self.forwards || !self.tenure.holds(&self.topology.snapshot()) {
                return Poll::Ready(End::Closed);
            }
            if let Err(error) = ready!(self.up.poll_drain(cx, &mut self.member)) {
                return Poll::Ready(End::Member(Some(error)));
            }
            self.awaits = true;
        }
    }
}

fn sooner(limit: Option<Instant>, time: Duration) -> Instant {
    let other = Instant::now() + time;
    limit.map_or(other, |limit| limit.min(other))
}
