//! Determines whether a deployment can be read from and written to, and whether enough is known to
//! decide that.

use sdam_core::{
    read_preference::{ReadMode, ReadPreference},
    server::{ServerDescription, ServerType},
    topology::TopologyDescription,
};
use sdam_select::{readable::accepts_reads, settings::Settings};

use crate::{exit::Exit, terminal::Tone};

/// The kinds of access that a deployment allows, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub enum Access {
    /// There is a writable server.
    #[strum(serialize = "writable")]
    Writable,
    /// There are only readable servers.
    #[strum(serialize = "readable only")]
    ReadableOnly,
    /// There is no usable server, or the client is incompatible with one of the servers.
    #[strum(serialize = "neither readable nor writable")]
    Neither,
}

impl Access {
    /// Evaluates `topology`, which is readable if any of its members is.
    pub fn of(topology: &TopologyDescription, settings: &Settings) -> Self {
        let nearest = ReadPreference::new(ReadMode::Nearest);
        if topology.accepts_writes() {
            Self::Writable
        } else if accepts_reads(topology, settings, &nearest) {
            Self::ReadableOnly
        } else {
            Self::Neither
        }
    }

    /// Returns the exit code of `--once`.
    pub fn exit(self) -> Exit {
        match self {
            Self::Writable => Exit::SUCCESS,
            Self::ReadableOnly => Exit::READABLE_ONLY,
            Self::Neither => Exit::NEITHER,
        }
    }

    pub(super) fn tone(self) -> Tone {
        match self {
            Self::Writable => Tone::Good,
            Self::ReadableOnly => Tone::Doubtful,
            Self::Neither => Tone::Bad,
        }
    }
}

/// Returns whether the state of all servers is known, so that waiting longer would reveal only
/// later changes.
///
/// This is true if every server has answered or failed and at least one has answered, because then
/// no other member can turn out to be the primary. If no server has answered, they may still be
/// starting; the timeout limits the wait. An empty topology counts as known, too, because it stays
/// empty.
pub fn is_known(topology: &TopologyDescription) -> bool {
    let servers = topology.servers();
    let answered = servers.iter().any(|server| server.server_type.is_available());
    servers.iter().all(|server| has_replied_or_failed(server)) && (answered || servers.is_empty())
}

/// Returns whether the server has answered or failed.
fn has_replied_or_failed(server: &ServerDescription) -> bool {
    server.last_update_time.is_some() || server.server_type == ServerType::LoadBalancer
}

/// The maximum number of servers to name.
const MAX_NAMED: usize = 10;

/// Explains which replies are missing for a topology to count as known.
pub(super) fn missing(topology: &TopologyDescription) -> String {
    let unheard = topology.servers().iter().filter(|server| !has_replied_or_failed(server));
    let unheard: Vec<&str> = unheard.map(|server| server.address.as_str()).collect();
    let (named, others) = unheard.split_at(unheard.len().min(MAX_NAMED));
    let named = named.join(", ");
    match (unheard.len(), others.len()) {
        (0, _) => "no server has answered in time".to_owned(),
        (_, 0) => format!("no reply or failure in time from {named}"),
        (_, more) => {
            format!("no reply or failure in time from {named} and {more} others")
        }
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::{
        address::ServerAddress,
        error::{Error, ErrorKind, Stage},
        ids::ServerId,
        time::Instant,
        topology::TopologyType,
    };

    use super::*;

    /// Returns the description of a server after a check, which failed if `server_type` is `None`.
    fn checked(port: u16, server_type: Option<ServerType>) -> ServerDescription {
        let (id, address) = (ServerId::from_u64(u64::from(port)), ServerAddress::new("h", port));
        let error = Error::new(ErrorKind::Network, Stage::Connect, "refused");
        let mut server = ServerDescription::failed(id, address, error, Instant::EPOCH);
        if let Some(server_type) = server_type {
            server.server_type = server_type;
            server.error = None;
        }
        server
    }

    fn unchecked(port: u16) -> ServerDescription {
        ServerDescription::unknown(ServerId::from_u64(0), ServerAddress::new("h", port))
    }

    #[test]
    fn a_topology_is_known_when_one_server_replied_and_all_others_replied_or_failed() {
        let check = |servers: Vec<ServerDescription>, expected: bool| {
            let topology = TopologyDescription::new(TopologyType::ReplicaSetNoPrimary, servers);
            assert_eq!(is_known(&topology), expected, "{topology}");
        };
        let secondary = Some(ServerType::RsSecondary);
        check(vec![], true);
        check(vec![unchecked(1)], false);
        check(vec![checked(1, None)], false);
        check(vec![checked(1, secondary)], true);
        check(vec![checked(1, secondary), unchecked(2)], false);
        check(vec![checked(1, secondary), checked(2, None)], true);
        check(vec![checked(1, Some(ServerType::RsGhost))], true);
    }

    #[test]
    fn up_to_ten_silent_servers_are_named() {
        let check = |count: u16, end: &str| {
            let servers: Vec<_> = (10..10 + count).map(unchecked).collect();
            let topology = TopologyDescription::new(TopologyType::ReplicaSetNoPrimary, servers);
            let words = missing(&topology);
            assert!(words.ends_with(end), "{words}");
        };
        check(0, "no server has answered in time");
        check(2, "in time from h:10, h:11");
        check(10, ", h:18, h:19");
        check(50, ", h:18, h:19 and 40 others");
    }
}
