use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sdam_core::{document::DocumentWriter, rng::Rng, time::Instant};

/// The maximum number of sessions that one `endSessions` ends (Driver Sessions: "endSessions").
const END_BATCH: usize = 10_000;

/// A session is not used any more this long before the server forgets it.
const MARGIN: Duration = Duration::from_secs(60);

/// The pool of server sessions (Driver Sessions: "Server Session Pool").
pub(super) struct Sessions {
    state: Mutex<State>,
}

struct State {
    /// Sessions that are not in use, the most recently used one first.
    idle: VecDeque<Session>,
    rng: Rng,
}

/// A server session.
#[derive(Debug)]
pub(super) struct Session {
    id: [u8; 16],
    last_use: Instant,
    /// The number of its last transaction.
    number: i64,
    /// Whether a command of it has met a network error, after which it is not used for other
    /// operations.
    pub(super) is_dirty: bool,
}

/// The number of a retryable write, the same for all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    pub(super) session: [u8; 16],
    pub(super) number: i64,
}

impl Sessions {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            state: Mutex::new(State {
                idle: VecDeque::new(),
                rng,
            }),
        }
    }

    /// Returns a session that the server remembers for at least a minute; `timeout` is its
    /// `logicalSessionTimeoutMinutes`, `None` behind a load balancer.
    pub(super) fn acquire(&self, now: Instant, timeout: Option<Duration>) -> Session {
        let mut state = self.lock();
        while let Some(session) = state.idle.pop_front() {
            if session.is_fresh(now, timeout) {
                return session;
            }
        }
        Session {
            id: random_uuid(&mut state.rng),
            last_use: now,
            number: 0,
            is_dirty: false,
        }
    }

    /// Takes a session back, and forgets those that are about to expire.
    pub(super) fn release(&self, session: Session, now: Instant, timeout: Option<Duration>) {
        let mut state = self.lock();
        while state
            .idle
            .back()
            .is_some_and(|last| !last.is_fresh(now, timeout))
        {
            state.idle.pop_back();
        }
        if !session.is_dirty && session.is_fresh(now, timeout) {
            state.idle.push_front(session);
        }
    }

    /// Forgets all sessions and returns the commands that end them.
    pub(super) fn end_commands(&self) -> Vec<Vec<u8>> {
        let ended = std::mem::take(&mut self.lock().idle);
        let ids: Vec<_> = ended.iter().map(|session| session.id).collect();
        let encode = |ids: &[[u8; 16]]| {
            let mut command = DocumentWriter::new();
            command.documents("endSessions", ids, |session, id| session.uuid("id", *id));
            command.finish()
        };
        ids.chunks(END_BATCH).map(encode).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Begins the next transaction.
    pub(super) fn next_transaction(&mut self) -> Transaction {
        self.number += 1;
        Transaction {
            session: self.id,
            number: self.number,
        }
    }

    /// Records that a command of the session is sent.
    pub(super) fn used(&mut self, now: Instant) {
        self.last_use = now;
    }

    fn is_fresh(&self, now: Instant, timeout: Option<Duration>) -> bool {
        timeout.is_none_or(|timeout| now.since(self.last_use) + MARGIN <= timeout)
    }
}

/// Returns a random UUID, version 4.
fn random_uuid(rng: &mut Rng) -> [u8; 16] {
    let bits = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
    let mut bytes = bits.to_be_bytes();
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_AN_HOUR: Option<Duration> = Some(Duration::from_secs(30 * 60));

    fn minutes(count: u64) -> Instant {
        Instant::from_millis(count * 60_000)
    }

    #[test]
    fn the_session_used_last_is_used_again_with_the_next_number() {
        let sessions = Sessions::new(Rng::new(1));
        let mut first = sessions.acquire(minutes(0), HALF_AN_HOUR);
        let second = sessions.acquire(minutes(0), HALF_AN_HOUR);
        assert_ne!(first.id, second.id);
        assert_eq!(first.next_transaction().number, 1);
        let id = first.id;
        sessions.release(second, minutes(0), HALF_AN_HOUR);
        sessions.release(first, minutes(0), HALF_AN_HOUR);
        let mut again = sessions.acquire(minutes(1), HALF_AN_HOUR);
        assert_eq!(again.id, id);
        assert_eq!(again.next_transaction().number, 2);
    }

    #[test]
    fn a_session_that_expires_within_a_minute_is_not_used_again() {
        let sessions = Sessions::new(Rng::new(1));
        let session = sessions.acquire(minutes(0), HALF_AN_HOUR);
        let id = session.id;
        sessions.release(session, minutes(29), HALF_AN_HOUR);
        let session = sessions.acquire(minutes(29), HALF_AN_HOUR);
        assert_eq!(session.id, id, "a minute is left");
        sessions.release(session, minutes(29), HALF_AN_HOUR);
        let later = minutes(29) + Duration::from_millis(1);
        assert_ne!(sessions.acquire(later, HALF_AN_HOUR).id, id);
    }

    #[test]
    fn behind_a_load_balancer_sessions_do_not_expire() {
        let sessions = Sessions::new(Rng::new(1));
        let session = sessions.acquire(minutes(0), None);
        let id = session.id;
        sessions.release(session, minutes(500), None);
        assert_eq!(sessions.acquire(minutes(1000), None).id, id);
    }

    #[test]
    fn a_session_with_a_network_error_is_not_used_again() {
        let sessions = Sessions::new(Rng::new(1));
        let mut session = sessions.acquire(minutes(0), HALF_AN_HOUR);
        session.is_dirty = true;
        sessions.release(session, minutes(0), HALF_AN_HOUR);
        assert!(sessions.end_commands().is_empty());
    }

    #[test]
    fn sessions_are_ended_in_batches_and_have_ids_of_version_4() {
        let sessions = Sessions::new(Rng::new(1));
        let all: Vec<_> = (0..=END_BATCH)
            .map(|_| sessions.acquire(minutes(0), HALF_AN_HOUR))
            .collect();
        for session in all {
            assert_eq!((session.id[6] >> 4, session.id[8] >> 6), (4, 2));
            sessions.release(session, minutes(0), HALF_AN_HOUR);
        }
        let count = |command: &Vec<u8>| {
            let command = bson::Document::from_reader(&command[..]).unwrap();
            command.get_array("endSessions").unwrap().len()
        };
        let counts: Vec<_> = sessions.end_commands().iter().map(count).collect();
        assert_eq!(counts, [END_BATCH, 1]);
        assert!(sessions.end_commands().is_empty());
    }
}
