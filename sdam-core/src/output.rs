//! The outputs of the parts that monitor a server.

use smallvec::SmallVec;

use crate::{event::EventKind, hello::HelloRequest, ids::ServerId, time::Instant};

/// Names one attempt to connect, and the connection that it opens. It is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnId {
    /// The server.
    pub(crate) server: ServerId,
    /// The purpose of the connection.
    pub(crate) role: Role,
    /// The number of the attempt among those of the server and the role, from 1.
    pub(crate) number: u64,
}

/// The purpose of a connection of a monitored server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// Checks of the server.
    Check,
    /// Measurements of round-trip times, while checks wait for changes.
    Ping,
}

/// An action that the caller has to perform.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// Open a connection.
    Connect {
        /// The new connection.
        conn: ConnId,
        /// When the attempt fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Send the request and read one reply.
    Send {
        /// The connection.
        conn: ConnId,
        /// The request.
        request: HelloRequest,
        /// When the request fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Read one more reply without sending anything.
    Read {
        /// The connection.
        conn: ConnId,
        /// When reading fails; `None` for no limit.
        deadline: Option<Instant>,
    },
    /// Cancel the operation in progress, if there is one, and close the connection.
    Disconnect {
        /// The connection.
        conn: ConnId,
    },
    /// Append the event to the queue of events.
    Emit(EventKind),
}

/// Outputs in the order in which they have to run.
#[derive(Debug, Default, PartialEq)]
#[must_use = "outputs carry commands to connections and pools"]
pub(crate) struct Outputs(SmallVec<[Output; 8]>);

impl Outputs {
    pub(crate) fn push(&mut self, output: Output) {
        self.0.push(output);
    }

    pub(crate) fn emit(&mut self, event: EventKind) {
        self.push(Output::Emit(event));
    }
}

impl IntoIterator for Outputs {
    type Item = Output;
    type IntoIter = smallvec::IntoIter<[Output; 8]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
