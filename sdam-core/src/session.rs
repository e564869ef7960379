//! Server sessions, their pool, the transaction numbers of retryable writes, and the cluster time.
//!
//! Everything here is plain data: the current time and random bytes are passed as arguments. A
//! client keeps one [`SessionPool`] behind a lock, and ends its sessions when it is closed.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::time::Duration;

use crate::{
    document::{DocumentWriter, Fields},
    time::Instant,
};

/// The maximum number of sessions in one `endSessions` (Driver Sessions: "endSessions").
const END_BATCH: usize = 10_000;

/// The time before the expiry of a session on the server at which the client stops using the
/// session.
const MARGIN: Duration = Duration::from_secs(60);

/// The id of a session: a random UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// Makes a version 4 UUID from `random` bytes.
    ///
    /// The bytes must differ from those of every other client of the deployment, so use the
    /// system's entropy. A server treats two sessions with the same id as one, and would answer
    /// writes of the second session from its records of the first, without running these writes.
    pub const fn new(random: [u8; 16]) -> Self {
        let mut bytes = random;
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        Self(bytes)
    }

    /// Returns the bytes of the UUID.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Writes the session into a command, as `lsid`.
    pub fn append_to(self, command: &mut DocumentWriter) {
        command.document("lsid", |id| id.uuid("id", self.0));
    }
}

/// A server session (Driver Sessions: "ServerSession").
#[derive(Debug)]
pub struct ServerSession {
    id: SessionId,
    last_use: Instant,
    /// The number of the session's last transaction.
    number: i64,
    is_dirty: bool,
}

impl ServerSession {
    /// Returns the id of the session.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Begins the next transaction, for a retryable write. All attempts of the write use the
    /// transaction's number.
    pub fn next_transaction(&mut self) -> Transaction {
        self.number += 1;
        Transaction { session: self.id, number: self.number }
    }

    /// Records that a command of the session is being sent.
    pub fn used(&mut self, now: Instant) {
        self.last_use = now;
    }

    /// Records that a command of the session failed with a network error, or was dropped before its
    /// reply arrived. The current operation may continue to use the session, but no other operation
    /// will get it.
    pub fn mark_dirty(&mut self) {
        self.is_dirty = true;
    }

    fn is_fresh(&self, now: Instant, timeout: Option<Duration>) -> bool {
        timeout.is_none_or(|timeout| now.since(self.last_use) + MARGIN <= timeout)
    }
}

/// The session and the number of a retryable write, with which a server ensures that the write runs
/// only once (Retryable Writes: "Transaction ID").
#[doc(alias = "txnNumber")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The session.
    pub session: SessionId,
    /// The number of the transaction within the session, starting at 1.
    pub number: i64,
}

impl Transaction {
    /// Writes the session and the number into a command, as `lsid` and `txnNumber`.
    pub fn append_to(self, command: &mut DocumentWriter) {
        self.session.append_to(command);
        command.int64("txnNumber", self.number);
    }
}

/// The newest cluster time that a client knows (Driver Sessions: "Gossipping the cluster time").
/// The client takes it from the replies of servers, and sends it with each command.
#[doc(alias = "$clusterTime")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterTime {
    time: u64,
    document: Box<[u8]>,
}

impl ClusterTime {
    /// Returns the cluster time in the reply `bytes`, if it is newer than `known`.
    pub fn newer(bytes: &[u8], known: Option<&Self>) -> Option<Self> {
        let mut fields = Fields::readable(bytes);
        let field = fields.find(|field| field.name() == b"$clusterTime")?;
        let mut own = field.fields().map_while(Result::ok);
        let time = own.find(|field| field.name() == b"clusterTime")?.timestamp()?;
        let is_newer = known.is_none_or(|known| time > known.time);
        is_newer.then(|| Some(Self { time, document: field.document()?.into() }))?
    }

    /// Writes the time into a command, as `$clusterTime`.
    pub fn append_to(&self, command: &mut DocumentWriter) {
        // This cannot fail, because the document was a field of a reply.
        let _ = command.encoded_document("$clusterTime", &self.document);
    }
}

/// The pool of server sessions of one client (Driver Sessions: "Server Session Pool").
///
/// The most recently used session is reused first. A process that `fork` creates needs its own
/// pool, because two processes must not share a session.
///
/// ```
/// use std::time::Duration;
///
/// use sdam_core::{document::DocumentWriter, session::SessionPool, time::Instant};
///
/// # let (now, random) = (Instant::EPOCH, || [7; 16]);
/// // `logicalSessionTimeoutMinutes` of the server.
/// let timeout = Some(Duration::from_secs(30 * 60));
/// let mut pool = SessionPool::default();
/// let mut session = pool.acquire(now, timeout, random);
/// let transaction = session.next_transaction();
/// let mut insert = DocumentWriter::new();
/// insert.text("insert", "people");
/// transaction.append_to(&mut insert);
/// session.used(now);
/// // After the reply, or after the last attempt:
/// pool.release(session, now, timeout);
/// assert_eq!(pool.len(), 1);
/// ```
#[derive(Debug, Default)]
pub struct SessionPool {
    /// Sessions that are not in use, the most recently used first.
    idle: VecDeque<ServerSession>,
}

impl SessionPool {
    /// Returns the number of sessions that are not in use.
    pub fn len(&self) -> usize {
        self.idle.len()
    }

    /// Returns whether there is no session to reuse.
    pub fn is_empty(&self) -> bool {
        self.idle.is_empty()
    }

    /// Takes the most recently used session if the server will remember it for at least a minute,
    /// or creates one whose id is made from the bytes that [`random`](SessionId::new) returns.
    ///
    /// `timeout` is the server's `logicalSessionTimeoutMinutes`; `None` behind a load balancer,
    /// where sessions do not expire (Load Balancers: "Session Expiration"). Check out a connection
    /// before acquiring a session; otherwise, every operation that waits for a connection also
    /// holds a session.
    pub fn acquire(
        &mut self,
        now: Instant,
        timeout: Option<Duration>,
        random: impl FnOnce() -> [u8; 16],
    ) -> ServerSession {
        while let Some(session) = self.idle.pop_front() {
            if session.is_fresh(now, timeout) {
                return session;
            }
        }
        ServerSession { id: SessionId::new(random()), last_use: now, number: 0, is_dirty: false }
    }

    /// Takes a session back, unless it is dirty, and discards sessions that are about to expire.
    pub fn release(&mut self, session: ServerSession, now: Instant, timeout: Option<Duration>) {
        while let Some(last) = self.idle.back()
            && !last.is_fresh(now, timeout)
        {
            self.idle.pop_back();
        }
        if !session.is_dirty && session.is_fresh(now, timeout) {
            self.idle.push_front(session);
        }
    }

    /// Removes up to 10,000 sessions, and returns the command that ends them on the server; `None`
    /// if there are none.
    ///
    /// Run the command on the database `admin`, on the primary of a replica set if there is one,
    /// otherwise on any server, and ignore its errors (Driver Sessions: "endSessions"). Do not call
    /// this method before there is a server to run the command on.
    #[doc(alias = "endSessions")]
    pub fn end_command(&mut self) -> Option<Vec<u8>> {
        if self.is_empty() {
            return None;
        }
        let ended = self.idle.drain(..self.idle.len().min(END_BATCH));
        let mut command = DocumentWriter::new();
        command.documents("endSessions", ended, |document, session| {
            document.uuid("id", session.id.0);
        });
        Some(command.finish())
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use bson::{Document, doc};

    use super::*;

    const HALF_AN_HOUR: Option<Duration> = Some(Duration::from_secs(30 * 60));

    fn minutes(count: u64) -> Instant {
        Instant::from_millis(count * 60_000)
    }

    /// Acquires a session; each new session has a different id.
    fn acquire(pool: &mut SessionPool, now: Instant, timeout: Option<Duration>) -> ServerSession {
        std::thread_local!(static COUNT: Cell<u8> = const { Cell::new(0) });
        let next = || [COUNT.replace(COUNT.get() + 1); 16];
        pool.acquire(now, timeout, next)
    }

    fn decoded(command: &[u8]) -> Document {
        Document::from_reader(command).unwrap()
    }

    #[test]
    fn the_newest_cluster_time_is_kept_and_sent_as_it_came() {
        // A client passes the newest cluster time on (R-6).
        let reply = |time: u32, increment: u32| {
            let time = bson::Timestamp { time, increment };
            let own = doc! { "clusterTime": time, "signature": { "keyId": 7_i64 } };
            doc! { "ok": 1, "$clusterTime": own }
        };
        let newer = |reply: &Document, known: Option<&ClusterTime>| {
            ClusterTime::newer(&reply.to_vec().unwrap(), known)
        };
        let known = newer(&reply(5, 2), None).unwrap();
        for old in [reply(5, 2), reply(5, 1), reply(4, 9), doc! { "$clusterTime": 9 }] {
            assert_eq!(newer(&old, Some(&known)), None, "{old}");
        }
        for new in [reply(5, 3), reply(6, 1)] {
            let known = newer(&new, Some(&known)).unwrap();
            let mut command = DocumentWriter::new();
            known.append_to(&mut command);
            let sent = decoded(&command.finish());
            assert_eq!(sent.get("$clusterTime"), new.get("$clusterTime"));
        }
    }

    #[test]
    fn the_session_used_last_is_used_again_with_the_next_number() {
        // A reused session continues its transaction numbers (I-77, R-2).
        let mut pool = SessionPool::default();
        let mut first = acquire(&mut pool, minutes(0), HALF_AN_HOUR);
        let second = acquire(&mut pool, minutes(0), HALF_AN_HOUR);
        assert_ne!(first.id(), second.id());
        assert_eq!(first.next_transaction().number, 1);
        let id = first.id();
        pool.release(second, minutes(0), HALF_AN_HOUR);
        pool.release(first, minutes(0), HALF_AN_HOUR);
        let mut again = acquire(&mut pool, minutes(1), HALF_AN_HOUR);
        assert_eq!(again.id(), id);
        assert_eq!(again.next_transaction().number, 2);
        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn a_session_that_expires_within_a_minute_is_not_used_again() {
        // A session that is about to expire is not reused (I-77).
        let mut pool = SessionPool::default();
        let mut session = acquire(&mut pool, minutes(0), HALF_AN_HOUR);
        let id = session.id();
        session.used(minutes(10));
        pool.release(session, minutes(39), HALF_AN_HOUR);
        let session = acquire(&mut pool, minutes(39), HALF_AN_HOUR);
        assert_eq!(session.id(), id, "a minute is left");
        pool.release(session, minutes(39), HALF_AN_HOUR);
        let later = minutes(39) + Duration::from_millis(1);
        assert_ne!(acquire(&mut pool, later, HALF_AN_HOUR).id(), id);
    }

    #[test]
    fn sessions_about_to_expire_are_forgotten_when_another_one_comes_back() {
        // Returning a session to the pool discards other sessions that are about to expire (R-3).
        let mut pool = SessionPool::default();
        let sessions = [0, 0, 20].map(|now| acquire(&mut pool, minutes(now), HALF_AN_HOUR));
        let [first, second, third] = sessions;
        pool.release(first, minutes(0), HALF_AN_HOUR);
        pool.release(second, minutes(40), HALF_AN_HOUR);
        assert!(pool.is_empty(), "both are too old");
        pool.release(third, minutes(40), HALF_AN_HOUR);
        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn behind_a_load_balancer_sessions_do_not_expire() {
        // Without a session time-out, sessions never expire (R-4).
        let mut pool = SessionPool::default();
        let session = acquire(&mut pool, minutes(0), None);
        let id = session.id();
        pool.release(session, minutes(500), None);
        assert_eq!(acquire(&mut pool, minutes(1000), None).id(), id);
    }

    #[test]
    fn a_session_with_a_network_error_is_not_used_again() {
        // A network error makes a session dirty, so it is not reused (I-77, R-5).
        let mut pool = SessionPool::default();
        let mut session = acquire(&mut pool, minutes(0), HALF_AN_HOUR);
        session.mark_dirty();
        pool.release(session, minutes(0), HALF_AN_HOUR);
        assert!(pool.is_empty() && pool.end_command().is_none());
    }

    #[test]
    fn sessions_are_ended_in_batches_of_10_000() {
        // One command ends at most 10,000 sessions (I-78).
        let mut pool = SessionPool::default();
        let all: Vec<_> = (0..=END_BATCH)
            .map(|number| {
                let mut random = [0; 16];
                random[..8].copy_from_slice(&number.to_be_bytes());
                pool.acquire(minutes(0), HALF_AN_HOUR, || random)
            })
            .collect();
        for session in all {
            pool.release(session, minutes(0), HALF_AN_HOUR);
        }
        let counts = std::iter::from_fn(|| pool.end_command())
            .map(|command| decoded(&command).get_array("endSessions").unwrap().len());
        assert_eq!(counts.collect::<Vec<_>>(), [END_BATCH, 1]);
        assert!(pool.is_empty());
    }

    #[test]
    fn a_transaction_is_written_as_a_uuid_of_version_4_and_its_number() {
        // The session's id is a random UUID (R-1).
        let random = [0xFF; 16];
        let mut session = SessionPool::default().acquire(minutes(0), None, || random);
        let mut command = DocumentWriter::new();
        session.next_transaction().append_to(&mut command);
        let mut uuid = random;
        (uuid[6], uuid[8]) = (0x4F, 0xBF);
        assert_eq!(session.id().bytes(), uuid);
        let id = bson::Uuid::from_bytes(uuid);
        let expected = doc! { "lsid": { "id": id }, "txnNumber": 1_i64 };
        assert_eq!(decoded(&command.finish()), expected);
    }
}
