//! The relayed connections, and limits on their number.

use std::{
    collections::HashMap,
    future::{Future, pending},
    net::{IpAddr, SocketAddr},
};

use tokio::task::{self, JoinSet};

use super::{
    arguments::Arguments,
    meters::{Refusal, Refused},
    port::Served,
};

/// The number of descriptors that the program itself needs, for its listeners and for checking the
/// members.
const OWN_DESCRIPTORS: u64 = 64;

/// The relayed connections. Dropping the value closes them.
#[derive(Debug)]
pub(super) struct Relays {
    /// The tasks of the connections. A task may end with the reason why its client was refused.
    tasks: JoinSet<Result<Served, Refused>>,
    clients: HashMap<task::Id, SocketAddr>,
    max: usize,
    max_per_client: Option<usize>,
    /// The remedy to name if too many connections are open.
    bottleneck: &'static str,
}

impl Relays {
    pub(super) fn new(arguments: &Arguments) -> Self {
        Self {
            tasks: JoinSet::new(),
            clients: HashMap::new(),
            max: arguments.max_connections,
            max_per_client: arguments.max_per_client,
            bottleneck: "see --max-connections",
        }
    }

    /// Lowers the maximum number of connections if the limit on open files requires that. If so,
    /// returns a warning.
    pub(super) fn adapt_to(&mut self, limit: u64) -> Option<String> {
        let left = limit - OWN_DESCRIPTORS.min(limit / 2);
        let most = usize::try_from(left / 2).unwrap_or(usize::MAX);
        (most < self.max).then(|| {
            self.max = most;
            self.bottleneck = "raise the limit of open files (ulimit -n, LimitNOFILE=)";
            format!(
                "the limit of open files, {limit}, admits {most} connections: {}, or lower \
                 --max-connections",
                self.bottleneck,
            )
        })
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Checks whether another connection from `host` may be served.
    pub(super) fn admits(&self, host: IpAddr) -> Result<(), Refused> {
        let open = self.len();
        if open >= self.max {
            let words = format!("{open} connections are open, {}", self.bottleneck);
            return Err(Refused(Refusal::Full, words));
        }
        let own = self.clients.values().filter(|client| client.ip() == host).count();
        if self.max_per_client.is_some_and(|most| own >= most) {
            let words = format!("{own} connections of it are open, see --max-per-client");
            return Err(Refused(Refusal::PerClient, words));
        }
        Ok(())
    }

    pub(super) fn spawn(
        &mut self,
        client: SocketAddr,
        relay: impl Future<Output = Result<Served, Refused>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(relay).id();
        self.clients.insert(id, client);
    }

    /// Waits until a connection has ended. Returns its client and the outcome.
    pub(super) async fn ended(&mut self) -> (SocketAddr, Result<Served, Refused>) {
        let Some(ended) = self.tasks.join_next_with_id().await else {
            return pending().await;
        };
        let (id, served) = match ended {
            Ok(ended) => ended,
            Err(bug) => {
                let words = format!("a bug of this program: {bug}");
                (bug.id(), Err(Refused(Refusal::Bug, words)))
            }
        };
        match self.clients.remove(&id) {
            Some(client) => (client, served),
            None => pending().await,
        }
    }
}
