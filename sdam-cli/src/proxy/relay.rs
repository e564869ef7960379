//! Relays bytes in both directions of a connection while the member keeps its role.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, io::AsyncWrite, select_biased};
use sdam::{Topology, transport::stream::ByteStream};
use tokio::time::{Instant, sleep_until};

use super::{
    dial::Way,
    frames::Exchange,
    meters::Meters,
    pipe::{Client, Pipe},
    tenure::Tenure,
    visitors::Visit,
};
use crate::never::or_never;

/// The duration of silence after which a member's reply counts as complete. It is used if the
/// messages cannot be told apart because they are encrypted.
const SETTLE: Duration = Duration::from_millis(100);

/// The reason why a relayed connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed the connection.
    Client,
    /// The member closed the connection, or an error broke it.
    Member(Option<io::Error>),
    /// The member lost its role.
    Lost,
    /// The program is ending.
    Stopped,
    /// Nothing was sent for too long.
    Idle,
}

impl End {
    /// The names of all reasons, as used in metrics.
    pub(super) const NAMES: [&str; 5] = ["client", "member", "lost", "stopped", "idle"];

    /// Returns the name of the reason, as used in metrics.
    pub(super) const fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Client => 0,
            Self::Member(_) => 1,
            Self::Lost => 2,
            Self::Stopped => 3,
            Self::Idle => 4,
        }]
    }
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
    meters: Arc<Meters>,
    visit: Visit,
    /// The time at which the request whose reply is outstanding was sent to the member.
    asked: Option<Instant>,
    /// The state of the messages; `None` if they cannot be told apart.
    exchange: Option<Exchange>,
    /// True if the last relayed bytes were sent to the member, not to the client.
    awaits: bool,
    /// The time at which the member last sent something.
    heard: Option<Instant>,
    sending: Sending,
    /// The time at which something was last sent in either direction.
    active: Instant,
}

/// The bytes that may still be sent to the member. If there is a limit, the connection is closed as
/// soon as that can be done without truncating a message or losing a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    All,
    /// Only the rest of the current request may be sent, because the program is ending.
    Request,
    /// Nothing may be sent, because the member has lost its role.
    Nothing,
    /// There is nothing more to send, because the client has closed its side. The stream to the
    /// member is then closed in this direction, too.
    Closed,
}

impl Relay {
    /// Connects `client`, whose first bytes are in `up`, to `member`. If there is no `exchange`,
    /// messages cannot be told apart.
    pub(super) fn new(
        (client, up): (Client, Pipe),
        member: Box<dyn ByteStream>,
        (topology, tenure): (Topology<Way>, Tenure),
        (meters, visit): (Arc<Meters>, Visit),
        exchange: Option<Exchange>,
    ) -> Self {
        meters.handles.to_member.increment(up.bytes().len() as u64);
        let mut relay = Self {
            client,
            member,
            up,
            down: Pipe::new(),
            topology,
            tenure,
            meters,
            visit,
            asked: None,
            exchange,
            awaits: false,
            heard: None,
            sending: Sending::All,
            active: Instant::now(),
        };
        relay.follow_sent();
        relay
    }

    /// Returns whether the member has sent anything.
    pub(super) fn has_answered(&self) -> bool {
        self.heard.is_some()
    }

    /// Returns whether the client has learned the names of the members, and has sent nothing but
    /// hello.
    pub(super) fn has_only_discovered(&self) -> bool {
        let is_hello = |exchange: &Exchange| exchange.shows_members() && !exchange.has_commands();
        self.has_answered()
            && self.exchange.as_ref().is_some_and(is_hello)
            && self.tenure.names_members()
    }

    /// Keeps track of the messages in the bytes that were last read from the client.
    fn follow_sent(&mut self) {
        let bytes = self.up.bytes();
        self.exchange.take_if(|exchange| !exchange.send(bytes));
        if self.exchange.as_ref().is_some_and(Exchange::has_commands) {
            self.visit.uses();
        }
    }

    /// Returns whether a reply of the member is outstanding.
    pub(super) fn awaits(&self) -> bool {
        self.exchange.as_ref().map_or(self.awaits, Exchange::awaits)
    }

    /// Relays until one side closes the connection, or until `lost` or `stopped` is ready. In the
    /// latter cases, a reply in progress may take as long as the duration given with the future.
    ///
    /// Also closes the connection if nothing is sent on it for the duration `idle`, unless a reply
    /// is outstanding. After `lost`, nothing is sent to the member; after `stopped`, no new request
    /// is sent.
    pub(super) async fn run(
        &mut self,
        (lost, patience): (impl Future<Output = ()>, Duration),
        (stopped, grace): (impl Future<Output = ()>, Duration),
        idle: Option<Duration>,
    ) -> End {
        let (mut lost, mut stopped) = (pin!(lost.fuse()), pin!(stopped.fuse()));
        let mut limit = None;
        let mut cause = End::Idle;
        loop {
            let due = match (limit, idle) {
                (Some(limit), _) => self.due(limit).map(Some),
                (None, Some(idle)) => self.rests_until(idle).map(Some),
                (None, None) => Some(None),
            };
            let Some(due) = due else {
                return cause;
            };
            let timer = or_never(due.map(sleep_until));
            select_biased! {
                () = lost => {
                    self.sending = Sending::Nothing;
                    cause = End::Lost;
                    limit = Some(sooner(limit, patience));
                }
                () = stopped => {
                    if self.sending == Sending::All {
                        self.sending = Sending::Request;
                        cause = End::Stopped;
                    }
                    limit = Some(sooner(limit, grace));
                }
                () = pin!(timer.fuse()) => {}
                end = poll_fn(|cx| self.poll(cx)).fuse() => return end.unwrap_or(cause),
            }
        }
    }

    /// Returns the time of the next check for a connection that must be closed by `limit`. Returns
    /// `None` if it has to be closed now, because the limit has passed or no reply is in progress.
    fn due(&self, limit: Instant) -> Option<Instant> {
        let now = Instant::now();
        if now >= limit {
            return None;
        }
        if self.exchange.is_some() || self.awaits || !self.down.is_empty() {
            return Some(limit);
        }
        let settled = self.heard? + SETTLE;
        (now < settled).then_some(limit.min(settled))
    }

    /// Returns the time of the next check for silence, or `None` if the connection has been silent
    /// for the duration `idle`.
    fn rests_until(&self, idle: Duration) -> Option<Instant> {
        let now = Instant::now();
        let is_busy = self.awaits() || !self.down.is_empty() || !self.up.is_empty();
        let due = if is_busy { now + idle } else { self.active + idle };
        (now < due).then_some(due)
    }

    /// Relays as much as is possible now. The result is `None` if the proxy has to close the
    /// connection, and can do so now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<End>> {
        if let Poll::Ready(end) = self.poll_down(cx) {
            return Poll::Ready(Some(end));
        }
        if let Poll::Ready(end) = self.poll_up(cx) {
            return Poll::Ready(Some(end));
        }
        let is_over = self.sending != Sending::All && self.is_complete();
        let has_left = || (self.sending == Sending::Closed).then_some(End::Client);
        if is_over { Poll::Ready(has_left()) } else { Poll::Pending }
    }

    /// Returns whether the connection could be closed now without truncating a message or losing a
    /// reply. If that is unknown, returns false.
    fn is_complete(&self) -> bool {
        // If the member has lost its role, the rest of a request is never sent, so do not wait for
        // it.
        let is_sent = self.sending == Sending::Nothing || self.up.is_empty();
        is_sent && self.down.is_empty() && self.exchange.as_ref().is_some_and(Exchange::is_complete)
    }

    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            if self.down.is_empty() {
                match ready!(self.down.poll_fill(cx, &mut self.member)) {
                    // The member closes the connection after its last reply because the client has
                    // closed its side. The client counts as the one that ended the connection.
                    Ok(0) if self.sending == Sending::Closed => return Poll::Ready(End::Client),
                    Ok(0) => return Poll::Ready(End::Member(None)),
                    Ok(length) => self.meters.handles.to_client.increment(length as u64),
                    Err(error) => return Poll::Ready(End::Member(Some(error))),
                }
                if let Some(asked) = self.asked.take() {
                    self.meters.handles.first_byte.record(asked.elapsed());
                }
                let bytes = self.down.bytes();
                self.exchange.take_if(|exchange| !exchange.receive(bytes));
                self.awaits = false;
                self.active = Instant::now();
                self.heard = Some(self.active);
                if let Some(bytes) = self.exchange.as_mut().and_then(Exchange::instead) {
                    self.down.replace(&bytes);
                    // The mask may hold the bytes back until the reply is complete, so read on.
                    continue;
                }
            }
            if ready!(self.down.poll_drain(cx, &mut self.client)).is_err() {
                return Poll::Ready(End::Client);
            }
        }
    }

    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            if self.sending == Sending::Closed {
                // This function runs again whenever the task is woken, until the stream is closed.
                // Closing a closed stream has no effect.
                let _ = Pin::new(&mut self.member).poll_close(cx);
                return Poll::Pending;
            }
            if self.up.is_empty() {
                if let Poll::Ready(Err(error)) = self.up.poll_flush(cx, &mut self.member) {
                    return Poll::Ready(End::Member(Some(error)));
                }
                let between = self.exchange.as_ref().is_none_or(Exchange::is_between_requests);
                if self.sending == Sending::Request && between {
                    return Poll::Pending;
                }
                match ready!(self.up.poll_fill(cx, &mut self.client)) {
                    Ok(0) if self.awaits() => {
                        // The client has closed its sending side, but may still read the reply.
                        self.sending = Sending::Closed;
                        continue;
                    }
                    Ok(0) | Err(_) => return Poll::Ready(End::Client),
                    Ok(length) => self.meters.handles.to_member.increment(length as u64),
                }
                self.follow_sent();
            }
            // Check the role before every write: once it is known that the member has lost its
            // role, the member must get nothing, even if this task has not been woken yet.
            let may_send = matches!(self.sending, Sending::All | Sending::Request);
            if !may_send || !self.tenure.holds(&self.topology.snapshot()) {
                return Poll::Ready(End::Lost);
            }
            if let Err(error) = ready!(self.up.poll_drain(cx, &mut self.member)) {
                return Poll::Ready(End::Member(Some(error)));
            }
            self.awaits = true;
            self.active = Instant::now();
            self.asked.get_or_insert(self.active);
        }
    }
}

fn sooner(limit: Option<Instant>, time: Duration) -> Instant {
    let other = Instant::now() + time;
    limit.map_or(other, |limit| limit.min(other))
}
