//! The judges: one looks after every step, the others when all is over.

pub(crate) mod cadence;
pub(crate) mod elections;
pub(crate) mod step;
pub(crate) mod truth;

use sdam_core::{
    server::ServerDescription,
    topology::{TopologyDescription, TopologyType},
};

/// Whether operations may be sent to the server.
pub(crate) fn is_selectable(topology: &TopologyDescription, server: &ServerDescription) -> bool {
    server.server_type.is_data_bearing()
        || topology.topology_type() == TopologyType::Single && server.server_type.is_available()
}
