//! The connections of a server's task.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll},
};

use sdam_core::{
    deployment::{ConnId, Role},
    error::{Error, ErrorKind, Stage},
    time::Instant,
};

use super::connection::{Answer, MonitorConnection};

/// The connections of a server, one for each [`Role`].
///
/// If the transport panics, the operation in progress fails with an error of kind `Internal`.
#[derive(Debug, Default)]
pub(crate) struct Links {
    check: Link,
    ping: Link,
    /// Unused as long as the server answers.
    probe: Option<Box<Link>>,
}

#[derive(Debug, Default)]
struct Link {
    /// The connection that was last opened.
    conn: Option<ConnId>,
    connection: MonitorConnection,
    /// True if the connection has panicked and its operation has no answer yet.
    panicked: bool,
}

impl Links {
    /// Begins to open `conn`, by calling `connect`.
    pub(crate) fn connect(&mut self, conn: ConnId, connect: impl FnOnce(&mut MonitorConnection)) {
        let link = self.link(conn.role);
        link.act(MonitorConnection::disconnect);
        link.conn = Some(conn);
        link.panicked = false;
        link.act(connect);
    }

    /// Applies `act` to `conn`, unless a later connection of the same role was opened.
    pub(crate) fn on(&mut self, conn: ConnId, act: impl FnOnce(&mut MonitorConnection)) {
        let link = self.link(conn.role);
        if link.conn == Some(conn) {
            link.act(act);
        }
    }

    /// Becomes ready with the next answer.
    pub(crate) fn poll(
        &mut self,
        now: impl Fn() -> Instant,
        cx: &mut Context<'_>,
    ) -> Poll<(ConnId, Answer)> {
        let probe = self.probe.as_deref_mut();
        for link in [&mut self.check, &mut self.ping].into_iter().chain(probe) {
            if let (Some(conn), Poll::Ready(answer)) = (link.conn, link.poll(&now, cx)) {
                return Poll::Ready((conn, answer));
            }
        }
        Poll::Pending
    }

    fn link(&mut self, role: Role) -> &mut Link {
        match role {
            Role::Check => &mut self.check,
            Role::Ping => &mut self.ping,
            Role::Probe => self.probe.get_or_insert_default(),
        }
    }
}

impl Link {
    /// Applies `act`, and catches its panic. Unwind safety: after a panic, the connection is
    /// discarded.
    fn act<T>(&mut self, act: impl FnOnce(&mut MonitorConnection) -> T) -> Option<T> {
        let connection = &mut self.connection;
        let result = catch_unwind(AssertUnwindSafe(|| act(connection)));
        if result.is_err() {
            self.panicked = true;
            // Dropping the connection may panic again.
            let broken = std::mem::take(&mut self.connection);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
        }
        result.ok()
    }

    fn poll(&mut self, now: impl Fn() -> Instant, cx: &mut Context<'_>) -> Poll<Answer> {
        if !self.panicked
            && let Some(state) = self.act(|connection| connection.poll(cx))
        {
            return state;
        }
        self.panicked = false;
        let reason = "the transport panicked";
        Poll::Ready(Answer::Failed {
            at: now(),
            error: Error::new(ErrorKind::Internal, Stage::Connect, reason),
        })
    }
}
