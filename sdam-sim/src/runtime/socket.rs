//! Connections of the program under test.

use std::{collections::VecDeque, task::Waker};

use sdam_core::{address::ServerAddress, time::Instant};

use super::{proxy::Session, tls::Endpoint, traffic::Tap};
use crate::{ConnectionId, MemberId};

/// A connection between the program and a server or a proxy.
#[derive(Debug)]
pub(super) struct Socket {
    /// The server at the other end. It is `None` until a proxy has connected to a server.
    pub(super) server: Option<ConnectionId>,
    /// The proxy's address and session.
    pub(super) proxy: Option<(ServerAddress, Session)>,
    /// The server's end of the TLS connection.
    pub(super) tls: Endpoint,
    pub(super) tap: Tap,
    /// Bytes that have arrived but have not been read yet.
    pub(super) inbox: VecDeque<u8>,
    pub(super) reader: Option<Waker>,
    pub(super) end: Option<End>,
    /// The last arrival time for each direction. Data arrives in order.
    pub(super) last_arrival: [Instant; 2],
    /// The directions in which bytes were lost.
    pub(super) cut: [bool; 2],
    /// The number of bytes that the server may still send before the connection is reset; `None` if
    /// there is no limit.
    pub(super) reset_after: Option<usize>,
}

impl Socket {
    /// Creates a connection to `proxy`. If `proxy` is `None`, the caller must then set
    /// [`server`](Self::server).
    pub(super) fn new(now: Instant, proxy: Option<ServerAddress>) -> Self {
        Self {
            server: None,
            tap: Tap::new(proxy.is_some()),
            proxy: proxy.map(|address| (address, Session::default())),
            tls: Endpoint::default(),
            inbox: VecDeque::new(),
            reader: None,
            end: None,
            last_arrival: [now; 2],
            cut: [false; 2],
            reset_after: None,
        }
    }

    /// Returns whether this is a connection to `member`, directly or through a proxy.
    pub(super) fn leads_to(&self, member: MemberId) -> bool {
        self.server.is_some_and(|own| own.member == member)
    }

    /// Returns whether this connection uses the proxy at `address`.
    pub(super) fn goes_through(&self, address: &ServerAddress) -> bool {
        let proxy = self.proxy.as_ref();
        proxy.is_some_and(|(own, _)| own == address)
    }
}

/// The way in which a connection has ended, as the program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    Reset,
}
