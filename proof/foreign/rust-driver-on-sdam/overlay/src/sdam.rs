//! Discovery, monitoring and selection, based on the framework sdam.

mod convert;
// The public view of a server is unchanged, but its parsing and comparison are unused.
#[allow(dead_code)]
mod description;
mod error;
mod event;
mod monitor;
pub mod public;
mod server;
mod srv_polling;
#[cfg(test)]
mod test;
pub(crate) mod topology;
mod transport;

pub use self::public::{ServerInfo, ServerType, TopologyType};
pub(crate) use self::{
    description::{
        server::{ServerDescription, TopologyVersion},
        topology::{
            TopologyDescription, TransactionSupportStatus, choose_n,
            server_selection::SelectedServer, verify_max_staleness,
        },
    },
    monitor::{DEFAULT_HEARTBEAT_FREQUENCY, MIN_HEARTBEAT_FREQUENCY},
    server::Server,
    topology::{BroadcastMessage, HandshakePhase, Topology, TopologyUpdater, TopologyWatcher},
};

#[allow(unused_imports)] // by the client's `end_all_sessions`
pub(crate) use self::description::topology::server_selection;
#[cfg(test)]
pub(crate) use self::topology::UpdateMessage;
